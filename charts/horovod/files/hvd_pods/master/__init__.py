"""The master: waits for the hosts, runs the launcher, and restarts it until the run is over."""

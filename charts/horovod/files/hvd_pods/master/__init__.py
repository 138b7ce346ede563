"""The master: waits for the workers, runs the launcher, and restarts it until the run is over."""

"""The protocol between the master and a worker's agent: requests for programs over TLS."""

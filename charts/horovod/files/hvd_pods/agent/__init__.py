"""How the master reaches a worker: TLS connections on which it asks it to start programs."""

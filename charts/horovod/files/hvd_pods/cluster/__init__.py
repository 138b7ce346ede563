"""What the master asks of the cluster: the calls to the Kubernetes API, and to DNS."""

"""The master's requests to the cluster: calls to the Kubernetes API and DNS."""

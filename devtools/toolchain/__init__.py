"""Build the Go programs (Kubernetes, Helm, chart-testing) from pinned modules."""

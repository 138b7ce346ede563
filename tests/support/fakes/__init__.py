"""Small programs and servers that stand in for Helm, engines, a cluster, a worker and a GPU."""

"""A real one-node Kubernetes, built from pinned Go module sources, for a machine that has no
cluster.
"""

"""A real Kubernetes of one or more nodes, built from pinned Go module sources, for a machine
without a cluster.
"""

"""A real Kubernetes of one node or two, built from pinned Go module sources, for a machine that has
no cluster.
"""

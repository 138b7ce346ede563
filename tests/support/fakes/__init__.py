"""Small servers and libraries that stand in for a cluster and a GPU."""

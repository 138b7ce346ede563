"""Small servers and libraries that replace a cluster and a GPU."""

"""Reads a cluster's nodes and writes a spec for them."""

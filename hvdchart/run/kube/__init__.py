"""Reaches the cluster: its API, and kubectl for what the API has no plain request for."""

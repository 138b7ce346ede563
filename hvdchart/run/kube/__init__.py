"""Reach the cluster: through its API, and through kubectl where the API has no plain request."""

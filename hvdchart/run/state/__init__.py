"""Compute the state of a run from the objects of its release. Pure."""

"""Looks into the pods of a run."""

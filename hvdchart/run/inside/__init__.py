"""Look into the pods of a run."""

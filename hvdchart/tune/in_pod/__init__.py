"""Programs that run inside the pods of a tuning run."""

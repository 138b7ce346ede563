"""Installs a run, reads its state from the cluster and follows its logs."""

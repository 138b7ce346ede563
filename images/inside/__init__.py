"""Runs checks of Horovod in images."""

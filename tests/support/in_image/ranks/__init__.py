"""Checks of Horovod's API that run inside an image, on any number of ranks."""

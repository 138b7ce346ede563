"""Checks of Horovod's Keras API that run inside an image, on any number of ranks."""

"""Runs Horovod checks in images: on a new TensorFlow, and Horovod's own tests."""

"""Builds and tests the container images of images/versions.yaml."""

"""Builds, tests and inspects the container images of images/versions.yaml."""

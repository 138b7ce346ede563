"""Reads, checks and models a cluster spec."""

# The spec in the folder of a project.
SPEC_NAME = "run.spec.yaml"

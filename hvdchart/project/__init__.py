"""A project of the user's own, and new ones from templates."""

# The spec in the folder of a project.
SPEC_NAME = "run.spec.yaml"

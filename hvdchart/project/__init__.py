"""A project of the user's own: new ones from templates, and changes of a spec's file."""

# The spec in the folder of a project.
SPEC_NAME = "run.spec.yaml"

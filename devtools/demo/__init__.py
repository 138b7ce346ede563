"""The demo: from an empty machine to a training run in pods."""

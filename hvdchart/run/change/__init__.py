"""Change a run: control it, edit and repeat it, open a shell in it."""

"""Changes a run: controls it, edits and repeats it, opens a shell in it."""

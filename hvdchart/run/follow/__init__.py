"""Follow a run until its end: its state and its logs."""

"""Follows a run while it goes on: its end, its logs."""

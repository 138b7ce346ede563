"""Calls a Python function on the ranks of a run, from a script or a notebook."""

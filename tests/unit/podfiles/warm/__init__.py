"""Ranks that are forks of the warm process, with small modules in place of frameworks."""

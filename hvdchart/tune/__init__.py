"""Measures thread settings in pods and writes the best one as a `tuning` block."""

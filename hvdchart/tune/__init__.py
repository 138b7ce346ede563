"""Measures thread settings in pods and writes the best as a tuning block."""

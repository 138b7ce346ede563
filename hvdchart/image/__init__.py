"""Checks whether an image has what the chart needs."""

"""Converts values of the old chart, jobs and scripts into values of this chart."""

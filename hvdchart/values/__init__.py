"""Turns a plan into the chart's values and checks them against the chart."""

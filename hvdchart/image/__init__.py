"""Check whether an image meets the chart's requirements."""

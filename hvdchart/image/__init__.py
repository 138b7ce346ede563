"""Build and deliver an image, and check whether one meets the chart's requirements."""

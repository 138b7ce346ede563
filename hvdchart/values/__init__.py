"""Turn a plan into the chart's values, and check them against the chart."""

"""Parts of the chart's pods on this machine, for tests and for the checks on a GPU."""

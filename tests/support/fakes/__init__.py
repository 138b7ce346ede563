"""Small real programs and servers that stand in for Helm, container engines and a cluster."""

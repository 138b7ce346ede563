"""Container images: what is in versions.yaml, built by the engine at hand, kept by content."""

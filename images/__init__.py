"""Container images: what is in versions.yaml, built with Docker, Podman or Buildah, and cached by content."""

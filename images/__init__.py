"""Container images, built with Docker, Podman or Buildah and cached by content."""

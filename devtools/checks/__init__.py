"""Static checks of this repository."""

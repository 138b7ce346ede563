"""Makes new projects from templates."""

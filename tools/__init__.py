"""What maintains this repository: environment, generated files, the demo."""

"""What the developer tools share: cache, console output and files."""

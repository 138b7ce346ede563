"""What unit tests of several folders use."""

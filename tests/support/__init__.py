"""What tests of several folders use. What only one folder uses is in that folder."""

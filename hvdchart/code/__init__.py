"""The user's own training code: from a folder to the values."""

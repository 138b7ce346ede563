"""What the objects of a release say of its run. Pure."""

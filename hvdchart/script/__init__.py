"""Makes the spec and the plan of a script from the options of a command, and its messages."""

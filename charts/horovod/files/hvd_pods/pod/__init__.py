"""The modules that the programs of the pods share: processes, connections, the user's code."""

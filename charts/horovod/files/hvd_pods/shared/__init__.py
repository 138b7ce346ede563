"""The modules that the programs of the pods and hvdchart share: the run, errors, launchers."""

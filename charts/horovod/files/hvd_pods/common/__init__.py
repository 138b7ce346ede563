"""The modules that all pods and hvdchart share: the run, errors, launchers, pod problems."""

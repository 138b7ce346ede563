"""What all pods and hvdchart know: the run, its errors, launchers, threads, pod problems."""

"""Files of other charts, of jobs and of launchers, and their migration."""

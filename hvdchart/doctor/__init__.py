"""Examines what a run needs before it is deployed: tools, cluster, rights, room."""

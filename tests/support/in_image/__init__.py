"""Run checks of Horovod in images."""

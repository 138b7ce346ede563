"""The paths of all files in the pods, as strings, because pathlib starts slowly (ADR 12)."""

from __future__ import annotations

# Where pods unpack the package `hvd_pods` (files/unpack.py).
BIN = "/horovod/bin"
PROGRAMS = f"{BIN}/hvd_pods"
KEYS = "/horovod/keys"
# An emptyDir in memory. Scripts for the old horovod chart read `hostfile` from here.
GENERATED = "/horovod/generated"
# The metrics of ranks, one file each. The chart passes this path to the pods in HVD_METRICS_DIR.
METRICS = f"{GENERATED}/metrics"
# The socket for requests about a worker's GPUs, and a program that prints the response
# (worker/gpus.py).
GPUS_SOCKET = f"{GENERATED}/gpus.sock"
GPUS_PROGRAM = f"{PROGRAMS}/worker/gpus.py"
# The user's code: mounted into the master by the chart, and unpacked in every pod.
CODE_SOURCE = "/horovod/code-source"
CODE = "/horovod/code"
# The packages that the code requires (pod/packages.py). A shell's `*` does not match the name.
PACKAGES = f"{CODE}/.packages"
# The kernel's reports of a container's limits, in both versions of cgroup.
CGROUPS = "/sys/fs/cgroup"
# The modules for scripts.
LIBRARY = f"{PROGRAMS}/library"

"""Where everything is in the pods. Paths are strings, because pathlib starts slowly (ADR 12)."""

from __future__ import annotations

# Where pods unpack the package `hvd_pods` (files/unpack.py).
BIN = "/horovod/bin"
PROGRAMS = f"{BIN}/hvd_pods"
KEYS = "/horovod/keys"
# An emptyDir in memory. Scripts written for older charts read `hostfile` from here.
GENERATED = "/horovod/generated"
# The metrics of ranks, one file each, of which the chart tells the pods by HVD_METRICS_DIR.
METRICS = f"{GENERATED}/metrics"
# Where a worker's GPUs are asked for, by a program that prints the answer (worker/gpus.py).
GPUS_SOCKET = f"{GENERATED}/gpus.sock"
GPUS_PROGRAM = f"{PROGRAMS}/worker/gpus.py"
# The user's code: mounted into the master by the chart, and unpacked in every pod.
CODE_SOURCE = "/horovod/code-source"
CODE = "/horovod/code"
# The packages that the code asks for (common/packages.py). A shell's `*` does not match the name.
PACKAGES = f"{CODE}/.packages"
# What the kernel tells of a container's limits, in both versions of cgroup.
CGROUPS = "/sys/fs/cgroup"
# The modules for scripts.
LIBRARY = f"{PROGRAMS}/library"

"""How the master starts the ranks of a worker, and what both ends say to each other.

The program is rank/worker_ranks.py. The master's part is master/direct.py.
"""

from __future__ import annotations

from hvd_pods.common.paths import GENERATED, PROGRAMS

# What the master asks a worker's agent to start, for the ranks of the worker.
START_RANKS = ("python3", "-I", "-S", f"{PROGRAMS}/rank/worker_ranks.py")
# The line that the master sends to that program: the ranks go on without a master.
STAY = b"stay\n"
# Where a worker writes the fence number of a launch whose ranks have all ended with 0, and their
# number.
FINISHED = f"{GENERATED}/finished"
# Set in worker.env by a user or `hvdchart run`: each line of the output names its rank. The master
# has the variable as well, by which it gives mpirun the option for that (master/mpi.py).
TAG_OUTPUT = "TAG_OUTPUT"

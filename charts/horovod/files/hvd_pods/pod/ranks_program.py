"""How the master starts the ranks of a worker, and the protocol between both ends.

The program is rank/worker_ranks.py. The master's part is master/direct.py.
"""

from __future__ import annotations

from hvd_pods.shared.paths import GENERATED, PROGRAMS

# The master's request to a worker's agent to start the ranks of the worker.
START_RANKS = ("python3", "-I", "-S", f"{PROGRAMS}/rank/worker_ranks.py")
# The line that the master sends to that program: the ranks go on without a master.
STAY = b"stay\n"
# The file in which a worker records the fence number of a launch whose ranks have all ended with 0,
# and their number.
FINISHED_FILE = f"{GENERATED}/finished"

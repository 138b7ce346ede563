"""The warm process of a worker: imports the frameworks while others start; a rank is a fork.

`server.py SOCKET MODULE...`; SOCKET is the number of the listening socket. The process
that is started watches the one that imports, and starts it again when it was killed. The module
`__main__` of each rank is this one, emptied: everything else is in modules of other names, which a
rank's script cannot see.
"""

from __future__ import annotations

import os
import sys

PROGRAMS = os.path.abspath(__file__).rsplit("/", 3)[0]
sys.path[0] = PROGRAMS
from hvd_pods.warm import service

# The ranks' scripts find their own modules only.
sys.path.remove(PROGRAMS)
service.main(globals())

"""The warm process of a worker: imports the frameworks during startup; each rank is a fork of it.

`server.py SOCKET MODULE...`; SOCKET is the number of the listening socket. The first process
watches the one that imports, and restarts it if it is killed. The module `__main__` of each rank is
this one, emptied: all other code is in modules of other names, which a rank's script cannot see.
"""

from __future__ import annotations

import os
import sys

PROGRAMS_PARENT = os.path.abspath(__file__).rsplit("/", 3)[0]
sys.path[0] = PROGRAMS_PARENT
from hvd_pods.warm import service

# The ranks' scripts must find only their own modules.
sys.path.remove(PROGRAMS_PARENT)
service.main(globals())

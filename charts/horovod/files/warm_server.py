"""The warm process of a worker: imports the frameworks while hosts gather; a rank is a fork of it.

`warm_server.py SOCKET MODULE... PADDING`; SOCKET is the number of the listening socket. The process
that is started watches the one that imports, and starts it again when it was killed. The module
`__main__` of each rank is this one, emptied: everything else is in modules of other names, which a
rank's script cannot see.
"""

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no further imports here
sys.path.insert(0, HERE)
import warm_service

sys.path[:] = [path for path in sys.path if os.path.realpath(path) != os.path.realpath(HERE)]
warm_service.main(globals())

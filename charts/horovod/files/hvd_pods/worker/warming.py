"""In a worker: wait until ranks could be forks of the warm process, or it has none.

The master runs it in a worker that has come while others train, before it starts the ranks again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.rank import warm_client

# Nothing shows that the modules were imported but a file.
LOOK_EVERY = 0.1


def main() -> int:
    """Return when the warm process has imported its modules, or after the time that ranks wait."""
    until = time.monotonic() + warm_client.WAIT_SECONDS
    while Path(warm_client.DESCRIPTION).exists() and not Path(warm_client.READY).exists():
        if time.monotonic() > until:
            break
        time.sleep(LOOK_EVERY)
    return 0


if __name__ == "__main__":
    sys.exit(main())

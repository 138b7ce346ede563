"""In a worker: wait until the warm process is ready to fork ranks, or none exists.

The master runs this in a worker that joins during training, before the master restarts the ranks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.rank import warm_client

# Only a file shows that the modules are imported.
WARM_POLL_INTERVAL_SECONDS = 0.1


def main() -> int:
    """Return when the warm process has imported its modules, or after the timeout of ranks."""
    until = time.monotonic() + warm_client.WARM_TIMEOUT_SECONDS
    while Path(warm_client.DESCRIPTION).exists() and not Path(warm_client.READY).exists():
        if time.monotonic() > until:
            break
        time.sleep(WARM_POLL_INTERVAL_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the command of an SSH session of a worker, in the container's environment.

sshd starts sessions with a nearly empty environment. The ranks would miss what a values file or an
image sets: paths, thread counts, credentials. A session of a master that was replaced is refused.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.abspath(__file__).rsplit("/", 3)[0])
from hvd_pods.common import fast_start, fence


def read_environment() -> dict[str, str]:
    """Return the environment that sshd.write_environment saved."""
    entries = fast_start.read(fast_start.ENVIRONMENT).split(b"\0")
    pairs = (entry.split(b"=", 1) for entry in entries if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}


def main() -> int:
    """Become the command, or say why this worker does not serve the session."""
    try:
        epoch = fence.admit(os.environ.get(fence.EPOCH))
    except fence.FenceError as problem:
        print(f"[hvd] error: {os.uname().nodename}: {problem}", file=sys.stderr, flush=True)
        return 1
    requested = os.environ.pop("SSH_ORIGINAL_COMMAND", None)
    # The container's values override sshd's.
    environment = {**os.environ, **read_environment(), fence.EPOCH: epoch}
    if requested == fast_start.START_RANKS:
        os.environ.clear()
        os.environ.update(environment)
        from hvd_pods.rank import host

        return host.main()
    os.execve("/bin/sh", ["/bin/sh", *(["-c", requested] if requested else ["-i"])], environment)


if __name__ == "__main__":
    sys.exit(main())

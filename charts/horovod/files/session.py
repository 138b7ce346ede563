"""Every SSH session of a worker: run what was asked for with the container's own environment.

sshd starts sessions with a nearly empty environment. Without this, what a values file or an image
sets (paths, thread counts, credentials) would be missing from the ranks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Mapping

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ssh


def session(
    of_sshd: Mapping[str, str], of_container: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a session: the container's values win over sshd's own."""
    environment = {**of_sshd, **of_container}
    asked = environment.pop("SSH_ORIGINAL_COMMAND", "")
    return (["/bin/sh", "-c", asked] if asked else ["/bin/sh", "-i"]), environment


if __name__ == "__main__":
    command, environment = session(os.environ, ssh.read_environment())
    os.execve(command[0], command, environment)

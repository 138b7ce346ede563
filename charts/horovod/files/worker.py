"""A worker's main program: prepares SSH, then becomes the sshd through which ranks are started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ssh
from settings import RunError, log, report_failure


def main() -> int:
    """Replace this process by sshd, or return an exit code when that is not possible."""
    try:
        command = ssh.prepare_worker(
            int(os.environ["HVD_SSH_PORT"]), os.environ["HVD_REVISION"], sys.executable
        )
        ssh.write_environment(os.environ)
    except RunError as error:
        return report_failure(error)
    log(f"ready for ranks: sshd on port {os.environ['HVD_SSH_PORT']}")
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())

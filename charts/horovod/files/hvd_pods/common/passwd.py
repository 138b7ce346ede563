"""Writes a passwd file that has an entry for the pod's own UID, which ssh and sshd require."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common.errors import ConfigurationError
from hvd_pods.common.paths import GENERATED


def complete_passwd(existing: str, uid: int, gid: int) -> list[str]:
    """Return the lines of a passwd file, with a line for `uid` added when there is none."""
    lines = [line for line in existing.splitlines() if line.strip()]
    if any(line.split(":")[2:3] == [str(uid)] for line in lines):
        return lines
    return [*lines, f"horovod-{uid}:x:{uid}:{gid}::/tmp:/bin/sh"]


def require_user_name() -> str:
    """Return the name of the pod's user. Raises ConfigurationError when its UID has no entry."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise ConfigurationError(
            f"UID {os.getuid()} has no entry in this image's /etc/passwd, and ssh needs one: set "
            "podSecurityContext.runAsUser to a UID other than 0, and the chart adds the entry"
        ) from None


def main() -> None:
    """Write the image's passwd file, with the pod's UID added, to the pod's shared volume."""
    existing = Path("/etc/passwd").read_text()
    lines = complete_passwd(existing, os.getuid(), os.getgid())
    (GENERATED / "passwd").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

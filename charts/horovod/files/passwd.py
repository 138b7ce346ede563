"""Write a passwd file that has an entry for the pod's own UID: ssh and sshd insist on one."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from settings import GENERATED


def passwd_lines(existing: str, uid: int, gid: int) -> list[str]:
    """The image's own lines, and one for `uid` when none of them has it."""
    lines = [line for line in existing.splitlines() if line.strip()]
    if any(line.split(":")[2:3] == [str(uid)] for line in lines):
        return lines
    return [*lines, f"horovod-{uid}:x:{uid}:{gid}::/tmp:/bin/sh"]


def require_entry() -> None:
    """Raise LookupError, saying the way out, when the pod's UID has no passwd entry."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise LookupError(
            f"UID {os.getuid()} has no entry in this image's /etc/passwd, and ssh needs one: set "
            "podSecurityContext.runAsUser to a UID other than 0, and the chart adds the entry"
        ) from None


def main() -> None:
    """Copy the image's passwd file into the pod's shared volume, completed."""
    existing = Path("/etc/passwd").read_text()
    lines = passwd_lines(existing, os.getuid(), os.getgid())
    (GENERATED / "passwd").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

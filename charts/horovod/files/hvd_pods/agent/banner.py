"""The line that a worker's agent sends to whoever connects, before anything is encrypted.

By it a master sees that a worker listens and which revision of the release it has. Whoever can
connect can read it, and it has no secret. Nobody is trusted because of it: a program is started
only after both ends have shown their certificates (agent/keys.py).
"""

from __future__ import annotations

from typing import NamedTuple

MARK = "HVD-AGENT-1 "
# Bytes that are read of what a server sends before it is taken for no agent.
LONGEST_BANNER = 256
# What is said of a worker of another revision.
STALE = "from before the last upgrade"
# How the workers of chart 0.1.0 greet, which had an SSH server there.
OLDER = "SSH-2.0-"


class NoAnswer(NamedTuple):
    """Why a worker does not answer as one of this run, and what decisions need of that.

    `is_stale`: its pod is of an earlier revision. `lacks_service`: the Service was deleted, so that
    no worker has an address.
    """

    reason: str
    is_stale: bool = False
    lacks_service: bool = False


def format_banner(revision: str) -> bytes:
    """Return the line of a worker of this revision."""
    return f"{MARK}{revision}\n".encode()


def find_banner_problem(banner: str, port: int, revision: str | None = None) -> NoAnswer | None:
    """Return None for the banner of an agent of this revision, or of any; else what is wrong."""
    if banner.startswith(OLDER) and "hvd-" in banner:
        why = f"{STALE}: port {port} is of chart 0.1.0, which sent {banner!r}"
        return NoAnswer(why, is_stale=True)
    if not banner.startswith(MARK):
        return NoAnswer(f"port {port} is not the agent of a worker: it sent {banner!r}")
    if revision is not None and banner != MARK + revision:
        why = f"{STALE}: it sent {banner!r}, this run needs {MARK}{revision}"
        return NoAnswer(why, is_stale=True)
    return None

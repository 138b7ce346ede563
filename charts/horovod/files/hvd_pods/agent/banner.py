"""The line that a worker's agent sends to whoever connects, before anything is encrypted.

By it a master sees that a worker listens and which revision of the release it has. Whoever can
connect can read it, and it has no secret. Nobody is trusted because of it: a program is started
only after both ends have shown their certificates (agent/keys.py).
"""

from __future__ import annotations

MARK = "HVD-AGENT-1 "
# Bytes that are read of what a server sends before it is taken for no agent.
LONGEST_BANNER = 256
# How the problem of a worker of another revision begins.
STALE = "from before the last upgrade"
# How the workers of chart 0.1.0 greet, which had an SSH server there.
OLDER = "SSH-2.0-"


def format_banner(revision: str) -> bytes:
    """Return the line of a worker of this revision."""
    return f"{MARK}{revision}\n".encode()


def find_banner_problem(banner: str, port: int, revision: str | None = None) -> str | None:
    """Return None for the banner of an agent of this revision, or of any; else what is wrong."""
    if banner.startswith(OLDER) and "hvd-" in banner:
        return f"{STALE}: port {port} is of chart 0.1.0, which sent {banner!r}"
    if not banner.startswith(MARK):
        return f"port {port} is not the agent of a worker: it sent {banner!r}"
    if revision is not None and banner != MARK + revision:
        return f"{STALE}: it sent {banner!r}, this run needs {MARK}{revision}"
    return None

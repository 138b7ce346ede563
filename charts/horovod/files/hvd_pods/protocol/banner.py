"""The line that a worker's agent sends to each client, before the connection is encrypted.

A master learns from it that a worker listens, and the worker's revision of the release. Any client
can read it, and it contains no secret. It establishes no trust: a program starts only after both
ends have shown their certificates (protocol/keys.py).
"""

from __future__ import annotations

from hvd_pods.shared.no_answer import STALE, NoAnswer

BANNER_MARK = "HVD-AGENT-1 "
# The most bytes to read from a server before it counts as no agent.
MAX_BANNER_BYTES = 256


def format_banner(revision: str) -> bytes:
    """Return the line of a worker of this revision."""
    return f"{BANNER_MARK}{revision}\n".encode()


def find_banner_problem(banner: str, port: int, revision: str | None = None) -> NoAnswer | None:
    """Return None for a banner of an agent of this revision, or of any; else the problem."""
    if not banner.startswith(BANNER_MARK):
        return NoAnswer(f"port {port} is not the agent of a worker: it sent {banner!r}")
    if revision is not None and banner != BANNER_MARK + revision:
        reason = f"{STALE}: it sent {banner!r}, this run needs {BANNER_MARK}{revision}"
        return NoAnswer(reason, is_stale=True)
    return None

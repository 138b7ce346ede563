"""Takes the notices of workers (pod/notices.py) in the master, in one thread for all of them.

Training code and other pods of the network can reach the port. A connection has a few seconds and a
limited number of bytes to send one line. The server verifies the line's secret before it parses the
line.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
from typing import Any, Mapping, Sequence, cast

from hvd_pods.pod import notices
from hvd_pods.pod.connections import ConnectionServer, Limits
from hvd_pods.pod.threads import start_thread
from hvd_pods.rules.events import EventSink, Notice, NoticeTaken
from hvd_pods.shared.notice_kinds import (
    ASKED,
    DEBUGGED,
    ENDED,
    FAILED,
    FINISHED,
    IDLE,
    KEPT,
    LEAVING,
    RAISED,
    STOPPED,
)
from hvd_pods.shared.run import Run
from hvd_pods.shared.untrusted import MAX_TEXT_CHARACTERS, printable

MAX_NOTICE_BYTES = 4096
# Connections at a time in addition to one for each worker; the launcher needs open files, too.
BASE_NOTICE_CONNECTIONS = 256
# The largest number of seconds in a notice.
MAX_NOTICE_SECONDS = 86400.0 * 365
# Required fields of a notice of each kind, in addition to `worker` and `rank`.
FIELDS: Mapping[str, Mapping[str, type]] = {
    RAISED: {"text": str},
    FAILED: {"status": int},
    FINISHED: {},
    ASKED: {},
    ENDED: {},
    KEPT: {},
    **{kind: {"seconds": float, "period": float} for kind in (STOPPED, DEBUGGED, IDLE)},
    LEAVING: {"seconds": float},
}
# Optional fields: the memory limit, in MiB, at which the kernel has killed the rank.
MORE_FIELDS: Mapping[str, Mapping[str, type]] = {FAILED: {"limit": float}}


class NoticeServer:
    """The master's side: each notice with the present fence number becomes an event.

    The sender continues when its connection is closed. The connection of a notice that `waits` is
    kept under a number, until `release`.
    """

    def __init__(
        self,
        own_address: str,
        run: Run,
        put: EventSink,
        seconds: float = notices.NOTICE_SEND_TIMEOUT_SECONDS,
    ) -> None:
        self._put = put
        self._secret = secrets.token_hex(16)
        self._workers = {worker.name for worker in run.workers}
        self._most_ranks = sum(worker.slots for worker in run.workers)
        self._kept: dict[int, socket.socket] = {}
        self._number = 0
        most = BASE_NOTICE_CONNECTIONS + len(run.workers)
        limits = Limits(seconds, MAX_NOTICE_BYTES, most)
        server = ConnectionServer(own_address, 0, b"\n", self._take, limits)
        # For senders: the address and the port of the server, and the secret that notices must
        # have.
        self.address = f"{own_address},{server.port},{self._secret}"
        # The attempt whose notices are accepted, and its fence number.
        self._present = (0, "")
        start_thread("take-notices", server.serve)

    def begin(self, attempt: int, fence: int) -> None:
        """Accept only the notices of this attempt from now on."""
        self._present = (attempt, str(fence))

    def release(self, numbers: Sequence[int]) -> None:
        """Close connections that wait."""
        for number in numbers:
            connection = self._kept.pop(number, None)
            if connection:
                with contextlib.suppress(OSError):
                    connection.close()

    def _take(self, line: bytes, connection: socket.socket) -> bytes | None:
        parsed = self._read(line)
        if parsed is None:
            return b""
        notice, waits, attempt = parsed
        if not waits:
            # Put the event first: when the connection is closed, the sender may end, and with it
            # the launcher.
            self._put(NoticeTaken(attempt, notice))
            return b""
        if len(self._kept) >= self._most_ranks:
            self.release(sorted(self._kept)[:1])
        self._number += 1
        self._kept[self._number] = connection
        self._put(NoticeTaken(attempt, notice, self._number))
        return None

    def _read(self, line: bytes) -> tuple[Notice, bool, int] | None:
        """Parse a line; None unless it is a notice of this run's present attempt."""
        # Parse JSON only from a sender that knows the secret: nested brackets are expensive.
        start = json.dumps({"secret": self._secret})[:-1].encode()
        if not hmac.compare_digest(line[: len(start)], start):
            return None
        try:
            notice = json.loads(line)
            attempt, fence = self._present
            is_present = notice.get("fence") == fence
            content = self._check(notice) if is_present else None
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return None
        if content is None:
            return None
        return content, notice.get("waits") is True, attempt

    def _check(self, notice: Mapping[str, Any]) -> Notice | None:
        """Return the known fields of a notice; None if one is missing or beyond limits.

        Raises KeyError or TypeError for another kind.
        """
        kind = notice["kind"]
        worker = notice["worker"]
        rank = notice.get("rank", -1)
        fields = FIELDS[kind]
        if (
            worker not in self._workers
            or type(rank) is not int
            or not -1 <= rank < self._most_ranks
        ):
            return None
        content: dict[str, Any] = {"kind": kind, "worker": worker, "rank": rank}
        more = {name: kind for name, kind in MORE_FIELDS.get(kind, {}).items() if name in notice}
        for name, expected in {**fields, **more}.items():
            value: Any = notice.get(name)
            if expected is str and isinstance(value, str):
                content[name] = printable(value[:MAX_TEXT_CHARACTERS], keeps="")
            elif expected is int and type(value) is int and -256 < value < 256:
                content[name] = value
            elif (
                expected is float
                and type(value) in (int, float)
                and 0 <= value <= MAX_NOTICE_SECONDS
            ):
                content[name] = float(value)
            else:
                return None
        # FIELDS has the fields and types of each kind.
        return cast(Notice, content)

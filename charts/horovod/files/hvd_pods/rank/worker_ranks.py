"""Starts the ranks of one worker without a launcher of the image (`launch.mode: direct`).

master/direct.py runs it over one agent connection for each worker. The first line of standard input
is JSON: the directory, the variables and the command of the ranks. When standard input ends, or a
rank fails, it ends the remaining ranks. It exits like the first rank that failed. After a line
`stay`, the ranks go on without a master for the seconds of the first line, unless the agent
connection of another master ends them earlier (worker/fence.py). Their output is lost.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import namedtuple
from collections.abc import Mapping, Sequence
from contextlib import suppress

sys.path.insert(0, os.path.abspath(__file__).rsplit("/", 3)[0])
from hvd_pods.pod import streams
from hvd_pods.pod.processes import die_with_parent
from hvd_pods.pod.ranks_program import FINISHED_FILE, STAY
from hvd_pods.rank import start
from hvd_pods.shared.contract import FENCE, TAG_OUTPUT

# Seconds from SIGTERM to SIGKILL: ranks that wait in a collective for the failed one run no
# handler. And the timeout for output of a rank's descendants after its end.
RANK_GRACE_PERIOD_SECONDS = 0.2
RANK_OUTPUT_DRAIN_TIMEOUT_SECONDS = 2.0
# The most chunks to read from an ended rank before its end is reported.
MAX_DRAIN_CHUNKS = 64


class Rank(namedtuple("Rank", ["number", "pid", "life", "streams"])):
    """A running rank: its number, its process, a pipe that closes with it, and its output."""


def begin(variables: Mapping[str, str], arguments: Sequence[str]) -> Rank:
    """Fork a process that does the work of rank/start.py."""
    # Programs that a rank starts do not inherit `alive`, so that `life` closes with the rank.
    (life, alive), (out, out_end), (err, err_end) = (os.pipe() for _ in range(3))
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with suppress(ImportError, OSError):
                die_with_parent(parent)
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out_end, 1)
            os.dup2(err_end, 2)
            os.close(out_end)
            os.close(err_end)
            os.environ.update(variables)
            sys.argv[1:] = arguments
            code = start.main()
        except Exception:  # noqa: BLE001 - shown as Python shows it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    with suppress(OSError):
        # The child does this, too: whichever comes first counts.
        os.setpgid(pid, pid)
    for descriptor in (alive, out_end, err_end):
        os.close(descriptor)
    output = [streams.Stream(out, 1), streams.Stream(err, 2)]
    if os.environ.get(TAG_OUTPUT):
        tags = [f"[{variables['HOROVOD_RANK']}]<{name}>:".encode() for name in ("stdout", "stderr")]
        output = [streams.Stream(out, 1, tag=tags[0]), streams.Stream(err, 2, tag=tags[1])]
    return Rank(int(variables["HOROVOD_RANK"]), pid, life, output)


class WorkerRanks:
    """The ranks of this worker."""

    def __init__(self, ranks: Sequence[Rank], stay: float) -> None:
        self._running = {rank.life: rank for rank in ranks}
        self._number = len(ranks)
        self._streams = {stream.source: stream for rank in ranks for stream in rank.streams}
        self._poll = select.poll()
        for source in (0, *self._running, *self._streams):
            self._poll.register(source, select.POLLIN)
        self._code = 0
        self._is_ending = False
        self._kill_at = float("inf")
        self._stay_seconds = stay
        self._stay_until = float("inf")

    def follow(self) -> int:
        """Pass on the output until all ranks end; return the exit code of the first that failed."""
        while self._running:
            self._look(min(self._kill_at, self._stay_until))
            if time.monotonic() >= self._stay_until:
                self._stay_until = float("inf")
                self._end()
            if time.monotonic() >= self._kill_at:
                self._kill_at = float("inf")
                self._send(signal.SIGKILL)
        self._note_finished()
        until = time.monotonic() + RANK_OUTPUT_DRAIN_TIMEOUT_SECONDS
        while self._streams and time.monotonic() < until:
            self._look(until)
        for stream in self._streams.values():
            stream.give_up()
        return self._code

    def _note_finished(self) -> None:
        """Record that all ranks finished: a later master must not repeat the training."""
        if self._code or self._is_ending:
            return
        with suppress(OSError), open(FINISHED_FILE, "w", encoding="ascii") as file:
            file.write(f"{os.environ.get(FENCE, '')} {self._number}")

    def _look(self, until: float) -> None:
        milliseconds_left = (
            None if until == float("inf") else max(0.0, until - time.monotonic()) * 1000
        )
        ready = {descriptor for descriptor, _ in self._poll.poll(milliseconds_left)}
        for source in ready & self._streams.keys():
            self._streams[source].pass_on()
        for life in ready & self._running.keys():
            self._take_end(self._running.pop(life))
        for source in [
            descriptor for descriptor, stream in self._streams.items() if not stream.is_open
        ]:
            self._poll.unregister(source)
            del self._streams[source]
        line = os.read(0, len(STAY)) if 0 in ready else None
        if line:
            self._stay()
        elif line is not None:
            self._poll.unregister(0)
            if self._running:
                # Ranks that end here have not finished: the exit code must not be 0.
                self._code = self._code or 128 + signal.SIGTERM
                self._end()

    def _stay(self) -> None:
        """Detach the ranks from the agent connection: they neither wait for it nor end with it."""
        if self._is_ending:
            return
        self._poll.unregister(0)
        streams.write(2, f"[hvd] ranks on {socket.gethostname()} go on without a master\n".encode())
        self._stay_until = time.monotonic() + self._stay_seconds
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)

    def _take_end(self, rank: Rank) -> None:
        # Pass on the rank's output before the line about its end.
        for stream in rank.streams:
            for _ in range(MAX_DRAIN_CHUNKS):
                if not (stream.is_open and stream.pass_on()):
                    break
        self._poll.unregister(rank.life)
        os.close(rank.life)
        _, status = os.waitpid(rank.pid, 0)
        is_killed = os.WIFSIGNALED(status)
        code = os.WEXITSTATUS(status)
        if status == 0 or self._is_ending:
            return
        ending = f"by signal {os.WTERMSIG(status)}" if is_killed else f"with exit code {code}"
        self._code = 128 + os.WTERMSIG(status) if is_killed else code
        rank_name = f"rank {rank.number} on {socket.gethostname()}"
        streams.write(2, f"[hvd] {rank_name} ended {ending}\n".encode())
        self._end()

    def _end(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._kill_at = time.monotonic() + RANK_GRACE_PERIOD_SECONDS
            self._send(signal.SIGTERM, signal.SIGCONT)

    def _send(self, *numbers: int) -> None:
        for rank in self._running.values():
            for number in numbers:
                with suppress(ProcessLookupError):
                    # A script that starts cold is a child in the same group.
                    os.killpg(rank.pid, number)


def main() -> int:
    """Start the ranks and stay until they have ended."""
    # Read no byte beyond the first line: the lines that follow are for WorkerRanks.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line.endswith(b"\n"):
        # The master ended the launch before it sent the first line.
        return 128 + signal.SIGTERM
    request = json.loads(line)
    with suppress(OSError):
        # The folder may exist only in the master's image.
        os.chdir(request["directory"])
    os.environ.update(request["variables"])
    ranks = [begin(variables, request["arguments"]) for variables in request["ranks"]]
    return WorkerRanks(ranks, request.get("stay", 0.0)).follow()


if __name__ == "__main__":
    sys.exit(main())

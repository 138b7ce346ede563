"""Takes calls in the master and starts the ranks of each, one call after the other.

`call_server.py SECONDS LINE...` is the run's launcher. LINE starts the ranks; it ends when there
was no call for so many seconds. `call_server.py connect` joins its standard streams with the
server's socket, for a caller that starts it with `kubectl exec`. A call ends when its caller goes.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).absolute().parents[3]), "/horovod/bin"]
from hvd_pods.common import (
    container_memory,
    contract,
    exit_codes,
    notices,
    paths,
    processes,
    streams,
)
from hvd_pods.common.connections import ConnectionServer, Limits
from hvd_pods.common.hostile import MOST_COUNTED, parse_count
from hvdchart.calls.in_pod import output, wire

SOCKET = os.environ.get(contract.CALLS, f"{paths.GENERATED}/calls.sock")
# Seconds in which the server of an attempt listens, and a rank says who it is.
LISTEN_WITHIN = 10.0
SPEAK_WITHIN = 10.0
# Seconds after a failure until the launcher gets SIGTERM, and from SIGTERM until SIGKILL.
FAIL_WITHIN = 0.5
END_WITHIN = 3.0
# Seconds after the end of the launcher in which the last output of ranks comes.
OUTPUT_WITHIN = 3.0
LOOK_EVERY = 0.1
TYPE_CHECKING = False
if TYPE_CHECKING:
    # What a caller has sent; None at its end.
    Frames = queue.Queue[wire.Frame | None]


class Call:
    """A call that is being made: what its ranks answer goes to the caller.

    Several threads use it: one for each rank, and the one that waits for the launcher.
    """

    def __init__(self, number: int, content: bytes, caller: socket.socket) -> None:
        self.number = number
        self._content = content
        # When a rank failed or the caller went; 0: neither.
        self.failed_at = 0.0
        # By rank, the memory limit in bytes for which the kernel has killed in its container.
        self.limits: dict[int, int] = {}
        self._caller = caller
        self._lock = threading.Lock()
        self._is_over = False
        self._spoke_at = time.monotonic()
        self._threads: list[threading.Thread] = []
        self._outputs: list[threading.Thread] = []

    def send(self, kind: bytes, data: bytes, number: int = 0) -> None:
        """Send the caller one frame; nothing after the end."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = kind == wire.END
            self._spoke_at = time.monotonic()
            rest = memoryview(wire.Frame(kind, number, data).encode())
            try:
                while rest:
                    # A caller may stop reading for a while; `receive` knows whether it has gone.
                    with suppress(socket.timeout):
                        rest = rest[self._caller.send(rest) :]
            except OSError:
                self._is_over = True
                self.fail()

    def beat(self) -> None:
        """Send something if there was nothing for a while."""
        if time.monotonic() - self._spoke_at > wire.BEAT_EVERY:
            self.send(wire.BEAT, b"")

    def end(self, code: int) -> None:
        """Tell the caller that the launcher has ended, after what its ranks have sent."""
        for threads, within in ((self._threads, FAIL_WITHIN), (self._outputs, OUTPUT_WITHIN)):
            until = time.monotonic() + within
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
        self.send(wire.END, json.dumps({"code": code, "limits": self.limits}).encode())

    def fail(self) -> None:
        """Let the ranks be ended."""
        self.failed_at = self.failed_at or time.monotonic()

    def take(self, rank: int, stream: int, connection: socket.socket) -> None:
        """Serve a rank, or a stream of its output, in a thread of its own."""
        work = partial(self._follow, rank, stream) if stream else partial(self._serve, rank)
        thread = threading.Thread(target=work, args=(connection,), daemon=True)
        (self._outputs if stream else self._threads).append(thread)
        thread.start()

    def passes_on(
        self, source: int, number: int, *, kind: int = 0, tag: str = ""
    ) -> streams.Stream:
        """The output that comes from a descriptor: it goes to the caller and the pod's log.

        `number` is that of the stream, and `kind` is added to it for the caller. `tag` begins each
        line.
        """

        def send(lines: bytes) -> None:
            for start in range(0, len(lines), wire.CHUNK):
                self.send(wire.OUTPUT, lines[start : start + wire.CHUNK], number + kind)

        return streams.Stream(source, number, send, tag.encode())

    def _follow(self, rank: int, number: int, connection: socket.socket) -> None:
        """Pass on a stream of a rank's output, tagged as the chart tags those of others."""
        name = "stdout" if number == output.STANDARD_OUTPUT else "stderr"
        with connection, suppress(OSError):
            stream = self.passes_on(connection.fileno(), number, tag=f"[{rank}]<{name}>:")
            # select() takes no descriptor from 1024 on, and each rank has three connections.
            ready = select.poll()
            ready.register(connection, select.POLLIN)
            while stream.is_open:
                ready.poll()
                pass_on(stream)

    def _serve(self, rank: int, connection: socket.socket) -> None:
        """Give a rank the call, and pass on its answer."""
        kind = b""
        is_complete = False
        with connection, suppress(OSError, ValueError), connection.makefile("rb") as stream:
            for encoded in wire.frames(wire.CALL, self._content):
                connection.sendall(encoded)
            while not is_complete:
                frame = wire.read_frame(stream)
                if frame is None or frame.kind not in (wire.RESULT, wire.FAILURE):
                    break
                kind = frame.kind
                is_complete = frame.is_last
                self.send(kind, frame.data, rank)
            if kind == wire.FAILURE:
                self.fail()
                # The launcher ends the rank: its own exit would be reported as another failure.
                connection.settimeout(FAIL_WITHIN + END_WITHIN)
                connection.recv(1)
        if not is_complete:
            self.send(wire.GONE, b"", rank)
            self.fail()


class CallServer:
    """Starts the ranks with `line`; they connect to a port at `address`, and show the secret."""

    def __init__(self, line: list[str], address: str, secret: str) -> None:
        self._line = line
        self._secret = secret.encode()
        self._call: Call | None = None
        self._number = 0
        limits = Limits(SPEAK_WITHIN, 256, 4096)
        self._ranks = ConnectionServer(address, 0, b"\n", self._take, limits)
        threading.Thread(target=self._ranks.serve, daemon=True).start()

    def _take(self, line: bytes, connection: socket.socket) -> bytes | None:
        """Take a rank that knows the secret and belongs to the present call.

        `line` is the first one that it sends: the secret, the number of the call, the rank, and 0,
        1 or 2 for a stream of the rank's output, or 3 and its memory limit.
        Returns None when it is taken, and what to answer before the connection is closed when not.
        """
        secret, _, rest = line.partition(b" ")
        number, *words = rest.decode("ascii", "replace").split(" ")
        call = self._call
        most = (MOST_COUNTED, output.MEMORY, container_memory.NO_LIMIT)
        read = [parse_count(word, largest) for word, largest in zip(words, most)]
        counts = [count for count in read if count is not None]
        if not hmac.compare_digest(secret, self._secret) or call is None:
            return b""
        if number != str(call.number) or len(counts) != len(words) or len(words) < 2:
            return b""
        rank, stream, *limits = counts
        if (stream == output.MEMORY) != bool(limits):
            return b""
        if limits:
            call.limits[rank] = limits[0]
            return b""
        call.take(rank, stream, connection)
        return None

    def attend(self, caller: socket.socket, idle: float) -> int | None:
        """Make the calls of one caller; None when it has gone, so that another may come.

        Otherwise the exit code with which to end: 0 after `idle` seconds without a call, 1 when the
        caller reports a lost worker.
        """
        caller.settimeout(wire.SILENT_FOR)
        frames: Frames = queue.Queue()
        threading.Thread(target=receive, args=(caller, frames), daemon=True).start()
        try:
            hello = json.dumps({"python": list(sys.version_info[:2])})
            caller.sendall(wire.Frame(wire.HELLO, 0, hello.encode()).encode())
            while True:
                next_frame = partial(frames.get, timeout=idle)
                message = wire.read_message(next_frame, wire.LARGEST_CALL)
                if message is None:
                    return None
                if message.kind == wire.END:
                    print("[hvd] error: the caller reports a lost worker", file=sys.stderr)
                    return 1
                self._make(message.data, caller, frames)
        except queue.Empty:
            return 0
        except (OSError, ValueError):
            return None
        finally:
            # Else `receive` would keep it open.
            with suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)

    def _make(self, content: bytes, caller: socket.socket, frames: Frames) -> None:
        """Make one call."""
        self._number += 1
        self._call = Call(self._number, content, caller)
        self._call.end(self._run(self._call, frames))
        self._call = None

    def _run(self, call: Call, frames: Frames) -> int:
        """Start the ranks and wait for the end of all; the launcher's exit code."""
        line = [*self._line, str(self._ranks.port), str(call.number)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        # The signals for the launcher, and how long after a failure each is due.
        ends = [(FAIL_WITHIN, signal.SIGTERM), (FAIL_WITHIN + END_WITHIN, signal.SIGKILL)]
        with selectors.DefaultSelector() as selector, process:
            for number, stream in ((1, process.stdout), (2, process.stderr)):
                assert stream is not None  # noqa: S101
                own = call.passes_on(stream.fileno(), number, kind=wire.OF_LAUNCHER)
                selector.register(stream, selectors.EVENT_READ, own)
            while process.poll() is None or selector.get_map():
                for key, _ in selector.select(LOOK_EVERY):
                    pass_on(key.data)
                    if not key.data.is_open:
                        selector.unregister(key.fileobj)
                # While the ranks run, anything in the queue means that the caller ends the call.
                if not frames.empty():
                    call.fail()
                call.beat()
                waited = time.monotonic() - call.failed_at if call.failed_at else 0.0
                if process.poll() is not None:
                    end_children()
                elif ends and waited > ends[0][0]:
                    _, due = ends.pop(0)
                    process.send_signal(due)
        return process.returncode


# One thread writes lines to the log of the pod at a time.
_logging = threading.Lock()


def pass_on(stream: streams.Stream) -> None:
    """Pass on the whole lines that have come. Raises OSError."""
    with _logging:
        stream.pass_on()


def receive(caller: socket.socket, frames: Frames) -> None:
    """Put what a caller sends but beats, and None when it has gone, or was silent for too long.

    The socket's time limit says how long that is.
    """
    with suppress(OSError, ValueError), caller.makefile("rb") as stream:
        for frame in iter(partial(wire.read_frame, stream), None):
            if frame.kind != wire.BEAT:
                frames.put(frame)
    frames.put(None)
    with suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)


def end_children() -> None:
    """Kill what the launcher has left: it would run beside the next call."""
    own = os.getpid()
    for pid, _, _, session in processes.all_processes():
        # The master starts this program in a session of its own.
        if session == own != pid:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def serve(idle: float, line: list[str]) -> int:
    """Take calls, of one caller after the other, until there are none for `idle` seconds.

    `line` starts the ranks. Returns the exit code.
    """
    address, _, secret = notices.parse_address(os.environ.get(notices.ADDRESS, ""))
    if not secret:
        print("[hvd] error: the pod has no address for its workers", file=sys.stderr)
        return exit_codes.BAD_CONFIGURATION
    server = CallServer(line, address, secret)
    with suppress(FileNotFoundError):
        Path(SOCKET).unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(SOCKET)
        Path(SOCKET).chmod(0o600)
        listener.listen()
        while select.select([listener], [], [], idle)[0]:
            caller, _ = listener.accept()
            with caller:
                code = server.attend(caller, idle)
            if code is not None:
                return code
    return 0


def connect() -> int:
    """Join the standard streams with the server's socket, until one of both ends.

    Raises SystemExit when no server listens within LISTEN_WITHIN seconds.
    """
    until = time.monotonic() + LISTEN_WITHIN
    connection = socket.socket(socket.AF_UNIX)
    while True:
        try:
            connection.connect(SOCKET)
            break
        except (FileNotFoundError, ConnectionRefusedError) as problem:
            if time.monotonic() > until:
                raise SystemExit(f"the call server does not listen: {problem}") from problem
            time.sleep(LOOK_EVERY)

    def pass_in() -> None:
        with suppress(OSError):
            while True:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=pass_in, daemon=True).start()
    while True:
        data = connection.recv(1 << 16)
        if not data:
            return 0
        streams.write(1, data)


if __name__ == "__main__":
    sys.exit(connect() if sys.argv[1] == "connect" else serve(float(sys.argv[1]), sys.argv[2:]))

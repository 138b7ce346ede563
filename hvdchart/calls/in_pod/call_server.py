"""Take calls in the master, and start the ranks of each call, one call after the other.

`call_server.py SECONDS LINE...` is the run's launcher. LINE starts the ranks. The server ends after
so many seconds without a call. `call_server.py connect` connects its standard streams to the
server's socket; a caller starts it with `kubectl exec`. When the caller disconnects, its call ends.
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
from hvd_pods.pod import notices, processes, streams
from hvd_pods.pod.connections import ConnectionServer, Limits
from hvd_pods.shared import container_memory, exit_codes, paths
from hvd_pods.shared.pipes import pipe_of
from hvd_pods.shared.untrusted import MAX_COUNTED, parse_count
from hvdchart.calls.in_pod import output, wire

CALLS_SOCKET = f"{paths.GENERATED}/calls.sock"
# Seconds for an attempt's server to start to listen, and for a rank to identify itself.
LISTEN_TIMEOUT_SECONDS = 10.0
RANK_HELLO_TIMEOUT_SECONDS = 10.0
# Seconds from a failure to SIGTERM for the launcher, and from SIGTERM to SIGKILL.
TERM_DELAY_SECONDS = 0.5
KILL_DELAY_SECONDS = 3.0
# Seconds without output of ranks, after the end of the launcher, until no more is expected: a
# process that a rank has left may keep a stream open.
OUTPUT_SILENCE_SECONDS = 3.0
# Seconds between two checks of a call: whether its output has been sent, the launcher has ended, or
# the server listens.
CALL_POLL_INTERVAL_SECONDS = 0.1
TYPE_CHECKING = False
if TYPE_CHECKING:
    # The frames of a caller; None at the end of its connection.
    Frames = queue.Queue[wire.Frame | None]


class Call:
    """A call in progress: send the ranks' answers to the caller.

    Several threads use it: one for each rank, and the thread that waits for the launcher.
    """

    def __init__(
        self,
        number: int,
        content: bytes,
        caller: socket.socket,
        output_silence_seconds: float = OUTPUT_SILENCE_SECONDS,
    ) -> None:
        self.number = number
        self._content = content
        # When a rank failed or the caller disconnected; 0: neither.
        self.failed_at = 0.0
        # By rank, the memory limit in bytes at which the kernel killed a process in its container.
        self.limits: dict[int, int] = {}
        self._caller = caller
        self._output_silence_seconds = output_silence_seconds
        self._lock = threading.Lock()
        self._is_over = False
        # When the last frame was sent; in the future while one is being sent.
        self._spoke_at = time.monotonic()
        self._threads: list[threading.Thread] = []
        self._outputs: list[threading.Thread] = []

    def send(self, kind: bytes, data: bytes, number: int = 0) -> None:
        """Send one frame to the caller; send nothing after the end."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = kind == wire.END
            self._spoke_at = float("inf")
            rest = memoryview(wire.Frame(kind, number, data).encode())
            try:
                while rest:
                    # A caller may stop reading for a while; `receive` detects a caller that is
                    # gone.
                    with suppress(socket.timeout):
                        rest = rest[self._caller.send(rest) :]
            except OSError:
                self._is_over = True
                self.fail()
            self._spoke_at = time.monotonic()

    def beat(self) -> None:
        """Send a heartbeat if no frame was sent for a while."""
        if time.monotonic() - self._spoke_at > wire.HEARTBEAT_INTERVAL_SECONDS:
            self.send(wire.BEAT, b"")

    def end(self, code: int) -> None:
        """Send the end of the launcher to the caller, after the answers and output of its ranks."""
        ended = time.monotonic()
        for thread in self._threads:
            thread.join(max(0.0, ended + TERM_DELAY_SECONDS - time.monotonic()))
        for thread in self._outputs:
            # However long it takes to send: a caller may be slow, and the output long.
            while thread.is_alive() and not self._is_over:
                if time.monotonic() - max(ended, self._spoke_at) > self._output_silence_seconds:
                    break
                thread.join(CALL_POLL_INTERVAL_SECONDS)
        self.send(wire.END, json.dumps({"code": code, "limits": self.limits}).encode())

    def fail(self) -> None:
        """Record a failure, after which the ranks are ended."""
        self.failed_at = self.failed_at or time.monotonic()

    def take(self, rank: int, stream: int, connection: socket.socket) -> None:
        """Serve a rank, or a stream of its output, in its own thread."""
        work = partial(self._follow, rank, stream) if stream else partial(self._serve, rank)
        thread = threading.Thread(target=work, args=(connection,), daemon=True)
        (self._outputs if stream else self._threads).append(thread)
        thread.start()

    def open_stream(
        self, source: int, number: int, *, kind: int = 0, tag: str = ""
    ) -> streams.Stream:
        """Return a stream that passes output of a descriptor to the caller and to the pod's log.

        `number` is the number of the stream. For the caller, `kind` is added to it. Each line
        starts with `tag`.
        """

        def send(lines: bytes) -> None:
            for start in range(0, len(lines), wire.FRAME_BYTES):
                self.send(wire.OUTPUT, lines[start : start + wire.FRAME_BYTES], number + kind)

        return streams.Stream(source, number, send, tag.encode())

    def _follow(self, rank: int, number: int, connection: socket.socket) -> None:
        """Pass on a stream of a rank's output, with the chart's tags."""
        name = "stdout" if number == wire.STANDARD_OUTPUT else "stderr"
        with connection, suppress(OSError):
            stream = self.open_stream(connection.fileno(), number, tag=f"[{rank}]<{name}>:")
            # select() supports descriptors below 1024 only, and each rank has three connections.
            ready = select.poll()
            ready.register(connection, select.POLLIN)
            while stream.is_open:
                ready.poll()
                pass_on(stream)

    def _serve(self, rank: int, connection: socket.socket) -> None:
        """Send the call to a rank, and pass on its answer."""
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
                # The launcher ends the rank: if the rank exited by itself, it would be reported as
                # another failure.
                connection.settimeout(TERM_DELAY_SECONDS + KILL_DELAY_SECONDS)
                connection.recv(1)
        if not is_complete:
            self.send(wire.GONE, b"", rank)
            self.fail()


class CallServer:
    """Starts the ranks with `line`; they connect to a port at `address`, and send the secret."""

    def __init__(self, line: list[str], address: str, secret: str) -> None:
        self._line = line
        self._secret = secret.encode()
        self._call: Call | None = None
        self._number = 0
        limits = Limits(RANK_HELLO_TIMEOUT_SECONDS, 256, 4096)
        self._ranks = ConnectionServer(address, 0, b"\n", self._take, limits)
        threading.Thread(target=self._ranks.serve, daemon=True).start()

    def _take(self, line: bytes, connection: socket.socket) -> bytes | None:
        """Accept a rank that sends the secret and belongs to the current call.

        `line` is the first line from the rank: the secret, the number of the call, the rank, and 0,
        1 or 2 for a stream of the rank's output, or 3 and its memory limit. Returns None when the
        rank is accepted, or else the answer to send before the connection is closed.
        """
        secret, _, rest = line.partition(b" ")
        number, *words = rest.decode("ascii", "replace").split(" ")
        call = self._call
        most = (MAX_COUNTED, output.MEMORY, container_memory.NO_LIMIT)
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
        """Make the calls of one caller; return None when it disconnects: another one may connect.

        Otherwise, return the exit code of the server: 0 after `idle` seconds without a call, 1 when
        the caller reports a lost worker.
        """
        caller.settimeout(wire.SILENCE_TIMEOUT_SECONDS)
        frames: Frames = queue.Queue()
        threading.Thread(target=receive, args=(caller, frames), daemon=True).start()
        try:
            hello = json.dumps({"python": list(sys.version_info[:2])})
            caller.sendall(wire.Frame(wire.HELLO, 0, hello.encode()).encode())
            while True:
                next_frame = partial(frames.get, timeout=idle)
                message = wire.read_message(next_frame, wire.MAX_CALL_BYTES)
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
            # Otherwise `receive` keeps the connection open.
            with suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)

    def _make(self, content: bytes, caller: socket.socket, frames: Frames) -> None:
        """Make one call."""
        self._number += 1
        self._call = Call(self._number, content, caller)
        self._call.end(self._run(self._call, frames))
        self._call = None

    def _run(self, call: Call, frames: Frames) -> int:
        """Start the ranks, and wait until all end; return the launcher's exit code."""
        line = [*self._line, str(self._ranks.port), str(call.number)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        # The signals for the launcher, and when to send each, in seconds after a failure.
        ends = [
            (TERM_DELAY_SECONDS, signal.SIGTERM),
            (TERM_DELAY_SECONDS + KILL_DELAY_SECONDS, signal.SIGKILL),
        ]
        with selectors.DefaultSelector() as selector, process:
            for number, stream in zip(wire.RANK_STREAMS, (process.stdout, process.stderr)):
                source = pipe_of(stream)
                lines = call.open_stream(source.fileno(), number, kind=wire.LAUNCHER_STREAM_OFFSET)
                selector.register(source, selectors.EVENT_READ, lines)
            while process.poll() is None or selector.get_map():
                for key, _ in selector.select(CALL_POLL_INTERVAL_SECONDS):
                    pass_on(key.data)
                    if not key.data.is_open:
                        selector.unregister(key.fileobj)
                # While the ranks run, any item in the queue means that the caller ends the call.
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


# One thread at a time writes lines to the log of the pod.
_logging = threading.Lock()


def pass_on(stream: streams.Stream) -> None:
    """Pass on the complete lines received so far. Raises OSError."""
    with _logging:
        stream.pass_on()


def receive(caller: socket.socket, frames: Frames) -> None:
    """Queue the caller's frames except heartbeats; queue None when it disconnects or times out.

    The socket's timeout is this limit.
    """
    with suppress(OSError, ValueError), caller.makefile("rb") as stream:
        for frame in iter(partial(wire.read_frame, stream), None):
            if frame.kind != wire.BEAT:
                frames.put(frame)
    frames.put(None)
    with suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)


def end_children() -> None:
    """Kill the processes that the launcher left: they would run during the next call."""
    server = os.getpid()
    for process in processes.all_processes():
        # The master starts this program in its own session.
        if process.session == server != process.pid:
            with suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)


def serve(idle: float, line: list[str]) -> int:
    """Take calls, one caller after the other, until there are no calls for `idle` seconds.

    `line` starts the ranks. Returns the exit code.
    """
    address, _, secret = notices.parse_address(os.environ.get(notices.ADDRESS, ""))
    if not secret:
        print("[hvd] error: the pod has no address for its workers", file=sys.stderr)
        return exit_codes.BAD_CONFIGURATION
    server = CallServer(line, address, secret)
    with suppress(FileNotFoundError):
        Path(CALLS_SOCKET).unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(CALLS_SOCKET)
        Path(CALLS_SOCKET).chmod(0o600)
        listener.listen()
        while select.select([listener], [], [], idle)[0]:
            caller, _ = listener.accept()
            with caller:
                code = server.attend(caller, idle)
            if code is not None:
                return code
    return 0


def connect() -> int:
    """Connect the standard streams to the server's socket, until either side closes.

    Raises SystemExit when no server listens within LISTEN_TIMEOUT_SECONDS.
    """
    until = time.monotonic() + LISTEN_TIMEOUT_SECONDS
    connection = socket.socket(socket.AF_UNIX)
    while True:
        try:
            connection.connect(CALLS_SOCKET)
            break
        except (FileNotFoundError, ConnectionRefusedError) as problem:
            if time.monotonic() > until:
                raise SystemExit(f"the call server does not listen: {problem}") from problem
            time.sleep(CALL_POLL_INTERVAL_SECONDS)

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

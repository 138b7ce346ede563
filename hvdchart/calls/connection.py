"""A call on the caller's side: send it to the call server, and read the ranks' answers."""

from __future__ import annotations

import codecs
import io
import json
import linecache
import math
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from operator import methodcaller
from tempfile import TemporaryFile
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import IO, Any

import cloudpickle

from hvd_pods.shared.container_memory import describe_exceeded
from hvd_pods.shared.launcher_output import split_tag
from hvd_pods.shared.pipes import pipe_of
from hvd_pods.shared.untrusted import one_line
from hvdchart.calls.call_image import check_python, find_imports, is_installed
from hvdchart.calls.in_pod import wire
from hvdchart.errors import CallError, ClusterError, HvdchartError, RunFailedError, TimeLimitError
from hvdchart.run.follow.lines import NoiseFilter
from hvdchart.text import join_names

# Seconds that kubectl has to end after its input ends.
_KUBECTL_EXIT_TIMEOUT_SECONDS = 2.0


class RemoteTraceback(Exception):  # noqa: N818 - it is the cause of an error
    """The cause of a function's exception: the traceback of the rank that raised it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class RanksError(RunFailedError):
    """Ranks ended without a result."""


class ConnectionLostError(ClusterError):
    """The connection to the call server has ended."""


@dataclass(frozen=True)
class Packed:
    """A pickled call, and the modules that it uses on the ranks."""

    content: bytes
    modules: frozenset[str]


class _Reduced:
    """A code object as cloudpickle reduces it, possibly without its file."""

    def __init__(self, reduced: tuple[Any, ...]) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Records the files of the code that is pickled, and the modules that it uses.

    Code keeps the name of its file; the ranks get the file's text under this name.
    """

    def __init__(self, target: IO[bytes]) -> None:
        super().__init__(target)
        self.files: set[str] = set()
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            self.files.add(obj.co_filename)
            self.modules.update(find_imports(obj))
            with_file = methodcaller("replace", co_filename=obj.co_filename)
            return with_file, (_Reduced(self.dispatch_table[CodeType](obj)),)
        if isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        elif isinstance(obj, FunctionType | BuiltinFunctionType | type):
            self.modules.add(obj.__module__ or "")
            code = getattr(obj, "__code__", None)
            # Many libraries import other libraries only if they are installed.
            if code and not is_installed(code.co_filename):
                self.modules.update(find_imports(code))
        return super().reducer_override(obj)


def _check_call(function: object, args: object, kwargs: object) -> None:
    """Raise CallError unless these are a function, a sequence and a map of arguments."""
    if not callable(function):
        raise CallError(
            f"{function!r:.200} is no function: pass the function itself, as in "
            "launch(train, [2]), and not what it returns or its name"
        )
    name = getattr(function, "__qualname__", repr(function))
    if iscoroutinefunction(function) or isasyncgenfunction(function):
        raise CallError(
            f"{name} is asynchronous, so that its result cannot travel: call it by asyncio.run "
            "inside of a plain function"
        )
    if isgeneratorfunction(function):
        raise CallError(f"{name} is a generator, which cannot travel: return a list")
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise CallError(f"args: got {args!r:.200}; expected a list of the arguments, such as [2]")
    if not isinstance(kwargs, Mapping):
        raise CallError(f"kwargs: got {kwargs!r:.200}; expected a dict of arguments by their names")
    # Some functions written in C have no signature.
    with suppress(ValueError):
        try:
            signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise CallError(f"{name} does not take these arguments: {error}") from None


def pack_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Packed:
    """Return a pickled call, followed by the texts of its code's files by name.

    With these texts, tracebacks of the ranks show the lines of a notebook's cells, and
    `inspect.getsource` works. Raises CallError for an invalid call, for a call that cannot be
    pickled, and for a call that is too large.
    """
    _check_call(function, args, kwargs)
    name = getattr(function, "__qualname__", repr(function))
    target = io.BytesIO()
    pickler = _Pickler(target)
    try:
        pickler.dump((function, tuple(args), dict(kwargs)))
    except Exception as error:
        raise CallError(
            f"{name} and its arguments cannot be pickled: {error}; open files, connections and "
            "locks inside of the function, and pass what they are opened from"
        ) from error
    texts = {file: "".join(linecache.getlines(file)) for file in sorted(pickler.files)}
    pickle.dump({file: text for file, text in texts.items() if text}, target)
    content = target.getvalue()
    if len(content) > wire.MAX_CALL_BYTES:
        raise CallError(
            f"{name} and its arguments are {len(content) / 2**20:.1f} MiB pickled, and a call "
            f"has at most {wire.MAX_CALL_BYTES / 2**20:.0f} MiB: put data onto a volume or into "
            "the image, and pass its path"
        )
    return Packed(content, frozenset(pickler.modules))


class Connection:
    """A connection to the call server, through a command such as `kubectl exec`.

    Raises ConnectionLostError when the server does not answer, and CallError when its Python is
    another one.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        heartbeat_seconds: float = wire.HEARTBEAT_INTERVAL_SECONDS,
        silence_timeout_seconds: float = wire.SILENCE_TIMEOUT_SECONDS,
    ) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._silence_timeout_seconds = silence_timeout_seconds
        # Whether the last call is complete, so that the connection can take another one.
        self.is_reusable = False
        # Why the caller ended the connection, and since when it waits for the server (inf: it does
        # not wait).
        self._problem: HvdchartError | None = None
        self._waits_since = math.inf
        self._closed = threading.Event()
        self._sending = threading.Lock()
        self._errors = TemporaryFile()  # noqa: SIM115 - `close` closes it
        pipe = subprocess.PIPE
        # The process has its own session, so Ctrl-C does not reach it.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True
        )
        self._requests = pipe_of(self._process.stdin)
        self._responses = pipe_of(self._process.stdout)
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            hello = self._receive()
            check_python(json.loads(hello.data)["python"])
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the next call may use this connection."""
        return self._problem is None and self._process.poll() is None

    def end(self, problem: HvdchartError) -> None:
        """Close the connection from any thread: a call in progress raises the problem."""
        self._problem = self._problem or problem
        self._process.kill()

    def end_server(self) -> None:
        """Make the server fail because workers are lost: the next attempt waits for new workers."""
        self.is_reusable = False
        with suppress(ConnectionLostError):
            self._send(wire.Frame(wire.END, 0, b"").encode())

    def close(self) -> None:
        """Close the connection, and end the ranks of a call."""
        self._closed.set()
        for stream in (self._requests, self._responses):
            with suppress(OSError):
                stream.close()
        try:
            self._process.wait(_KUBECTL_EXIT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def call(
        self, content: bytes, ranks: int, seconds: float | None, write: Callable[[str], object]
    ) -> list[Any]:
        """Make a call whose content `pack_call` made; return the results by rank.

        `write` gets the ranks' output as it comes, with the rank before each line. If the call has
        ended, the connection can be used again, even after an exception. Raises the exception of
        the first rank that fails, RanksError for ranks without a result, RunFailedError for one
        that was out of memory, TimeLimitError after `seconds`, CallError for a result that cannot
        be read here, and ConnectionLostError.
        """
        self.is_reusable = False
        with ExitStack() as stack:
            if seconds is not None:
                late = f"the function has not returned within {seconds:g} s; its ranks were ended"
                timer = threading.Timer(seconds, self.end, [TimeLimitError(late)])
                timer.daemon = True
                timer.start()
                stack.callback(timer.cancel)
            for frame in wire.frames(wire.CALL, content):
                self._waits_since = time.monotonic()
                self._send(frame)
            return self._results(ranks, write)

    def _results(self, ranks: int, write: Callable[[str], object]) -> list[Any]:
        """Read until the end of the call; return or raise for `call`.

        The first failure is the cause of the others.
        """
        outputs = {stream: _Output(is_launchers=False) for stream in wire.RANK_STREAMS}
        outputs |= {stream: _Output(is_launchers=True) for stream in wire.LAUNCHER_STREAMS}
        parts: dict[tuple[bytes, int], list[bytes]] = {}
        complete: dict[tuple[bytes, int], bytes] = {}
        failed: tuple[bytes, int] | None = None
        while True:
            frame = self._receive()
            key = (frame.kind, frame.number)
            if frame.kind == wire.END:
                self.is_reusable = True
                for output in outputs.values():
                    output.end(write)
                break
            if frame.kind == wire.OUTPUT:
                outputs[frame.number].take(frame.data, write)
                continue
            parts.setdefault(key, []).append(frame.data)
            if frame.is_last:
                complete[key] = b"".join(parts.pop(key))
                if frame.kind in (wire.FAILURE, wire.GONE):
                    failed = failed or key
        if failed:
            limit = json.loads(frame.data).get("limits", {}).get(str(failed[1]))
            _raise(failed, complete[failed], limit)
        results = [complete.get((wire.RESULT, rank)) for rank in range(ranks)]
        missing = [str(rank) for rank, result in enumerate(results) if result is None]
        if missing:
            code = json.loads(frame.data)["code"]
            names = join_names(missing)
            raise RanksError(
                f"the launcher ended with exit code {code}, without the result of rank {names}; "
                "see the reason in the output"
            )
        return [_load(rank, result) for rank, result in enumerate(results) if result is not None]

    def _receive(self) -> wire.Frame:
        """Return the next frame except heartbeats; raise the reason if the connection has ended."""
        self._waits_since = time.monotonic()
        with suppress(ValueError):
            for frame in iter(partial(wire.read_frame, self._responses), None):
                if frame.kind != wire.BEAT:
                    self._waits_since = math.inf
                    return frame
                self._waits_since = time.monotonic()
        raise self._loss()

    def _send(self, frame: bytes) -> None:
        """Send an encoded frame; raise the reason when the connection has ended."""
        try:
            with self._sending:
                self._requests.write(frame)
                self._requests.flush()
        except OSError as error:
            raise self._loss() from error

    def _beat(self) -> None:
        """Send heartbeats, and close the connection when the server is silent for too long."""
        while not self._closed.wait(self._heartbeat_seconds):
            # A frame that is being sent counts as a heartbeat.
            if not self._sending.locked():
                with suppress(HvdchartError, ValueError):
                    self._send(wire.Frame(wire.BEAT, 0, b"").encode())
            if time.monotonic() - self._waits_since > self._silence_timeout_seconds:
                silent = f"nothing has come from the pods for {self._silence_timeout_seconds:g} s"
                self.end(ConnectionLostError(f"the connection to the pods is lost: {silent}"))

    def _loss(self) -> HvdchartError:
        """Return why the connection ended: `end`'s reason, or else kubectl's last error line."""
        if self._problem:
            return self._problem
        self._errors.seek(0)
        text = self._errors.read(1 << 16).decode(errors="replace").strip()
        reason = one_line(text.rpartition("\n")[2]) or "the call server has gone"
        return ConnectionLostError(f"the connection to the pods has ended: {reason}")


def _put_rank_first(output: str) -> str:
    """Put the rank before each line as `hvdchart logs` does, in place of the chart's tags."""
    lines = map(split_tag, output.split("\n"))
    return "\n".join(text if rank is None else f"[{rank}] {text}" for rank, text in lines)


class _Output:
    """Writes the texts of a stream: a rank's with its number, the launcher's without its boxes."""

    def __init__(self, *, is_launchers: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._noise: NoiseFilter[str] | None = NoiseFilter() if is_launchers else None

    def take(self, data: bytes, write: Callable[[str], object]) -> None:
        """Write new output; write the launcher's output in whole lines only."""
        text = self._decoder.decode(data)
        if self._noise is None:
            write(_put_rank_first(text))
            return
        for line in text.splitlines(keepends=True):
            for shown in self._noise.take(line.rstrip("\r\n"), line):
                write(shown)

    def end(self, write: Callable[[str], object]) -> None:
        """Write the rest at the end of the stream."""
        for shown in self._noise.end() if self._noise else []:
            write(shown)


def _raise(failed: tuple[bytes, int], content: bytes, limit: float | None) -> None:
    """Raise the failure of a rank; `failed` is the kind of the frame and the rank.

    Raises the function's own exception if it can be restored here, or else RunFailedError with its
    traceback. Raises CallError for a problem with the call. For a rank that has gone, raises
    RanksError, or RunFailedError where the kernel killed a process at the container's memory
    `limit`, in bytes.
    """
    kind, rank = failed
    if kind == wire.GONE:
        if limit:
            reason = describe_exceeded(limit / (1 << 20), "`memory=` (or that of the spec)")
            raise RunFailedError(f"rank {rank}: {reason}")
        raise RanksError(f"rank {rank} has ended without a result; its output may say why")
    host, text, problem, pickled = pickle.loads(content)  # noqa: S301 - docs/security.md
    rank_name = f"rank {rank} on {host}"
    if problem:
        raise CallError(f"{rank_name}: {problem}")
    error = None
    # The caller may lack the module of the class, or the constructor may need other arguments.
    with suppress(Exception):
        error = pickle.loads(pickled) if pickled else None  # noqa: S301
    if isinstance(error, Exception):
        raise error from RemoteTraceback(f"{rank_name}:\n{text}")
    raise RunFailedError(f"{rank_name} has failed:\n{text}")


def _load(rank: int, content: bytes) -> Any:
    """Return the result of a rank. Raises CallError if this program cannot read it."""
    try:
        return pickle.loads(content)  # noqa: S301
    except Exception as error:
        raise CallError(
            f"the result of rank {rank} cannot be read here: {error!r}; return plain data or "
            "arrays, or install here what the image has"
        ) from error

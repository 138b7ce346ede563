"""Why the launcher failed, in one line: which rank was first, on which host, and with what.

The reason is buried under the launcher's banners and the errors of the ranks that lost their peer.
The launcher's error output is passed on and read on the way, without TensorFlow's notes on how it
computes: no variable keeps TensorFlow 2.21 from writing these, and each rank does so.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import deque
from itertools import takewhile
from typing import IO, Any, Callable, Mapping, NamedTuple, Sequence

from hvd_pods.cluster.spawn import spawn
from hvd_pods.common.hostile import one_line
from hvd_pods.common.run import Host
from hvd_pods.common.streams import write
from hvd_pods.common.tracebacks import TracebackReader
from hvd_pods.master.gpu_problems import find_gpu_problem
from hvd_pods.rules.host_names import find_host
from hvd_pods.rules.messages import Cause

# Lines of the launcher's end that are searched, and the seconds before it in which the cause was
# printed: a script may print tracebacks of errors that it has handled.
LAST_LINES = 400
LAST_SECONDS = 15.0
# Seconds to wait for output of processes that outlive the launcher.
DRAIN_WITHIN = 2.0
# What TAG_OUTPUT, and mpirun with --tag-output, put before each line of a rank.
TAG = re.compile(r"^\[(?:\d+,)?(\d{1,7})\]<std(?:err|out)>:")
# What PyTorch puts before messages of its own.
PYTORCH = re.compile(r"\[rank(\d{1,7})\]:")
# What TensorFlow writes when it starts, with a launcher's tag. C++ writes a line in one piece.
NOTES = re.compile(
    rb"^(?:\[[^]\n]*\](?:<stderr>:)? ?)?"
    rb"(?:WARNING: All log messages before absl::InitializeLog\(\)"
    rb"|I0000 \S+ +\d+ \S+\] (?:oneDNN custom operations are|This TensorFlow binary is optimized))"
    rb"[^\n]*\n",
    re.M,
)
# How a launcher's final report begins, and lines of launchers that may precede that report.
END = re.compile(
    r"Primary job  terminated|^(?:mpirun|prterun|orterun)\b.* (?:detected|noticed|has exited)"
    r"|MPI_ABORT was invoked|BAD TERMINATION|^Process \d+ exit with|^\[hvd\] rank \d+ on \S+ ended"
)
OF_LAUNCHERS = re.compile(
    r"^\W*$|^(?:mpirun|prterun|orterun)\b|^\[(?:mpiexec|proxy)\b|^\[\S+:\d+\] \d+ more "
)
# Ranks whose tracebacks are read at a time, and characters of a rank's last line that are shown.
MOST_RANKS = 20_000
LONGEST_WORDS = 300
# Characters of an exception with its place and what to do about it.
LONGEST_TEXT = 800
# The first rank that failed, as the launchers name it.
RANKS = (
    re.compile(
        r"rank (?P<rank>\d{1,7}) with PID \d+ on node \S+ exited on signal (?P<signal>\d{1,3})\b"
    ),
    re.compile(r"Process name:\s+\[\[\d+,\d+\],(?P<rank>\d{1,7})\]"),
    re.compile(r"Process name:\s+\[prterun-\S+,(?P<rank>\d{1,7})\]"),
    re.compile(r"Process (?P<rank>\d{1,7}) exit with status code \d+"),
    re.compile(
        r"^\[hvd\] rank (?P<rank>\d{1,7}) on \S+ ended (?:with|by signal (?P<signal>\d{1,3})$)"
    ),
)
EXPLANATIONS = {
    signal.SIGKILL: "killed, as the kernel does when a container is out of memory "
    "(worker.resources.limits.memory)",
    signal.SIGBUS: "bus error, as when shared memory is full (shm.sizeLimit)",
    signal.SIGILL: "illegal instruction: the image was built for other CPUs than this node's",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted, after the message above",
}
# Exceptions that the same command raises again wherever it runs.
SURE_TO_REPEAT = {
    "AssertionError",
    "AttributeError",
    "FileNotFoundError",
    "FloatingPointError",
    "ImportError",
    "IndentationError",
    "IndexError",
    "InvalidArgumentError",
    "IsADirectoryError",
    "JSONDecodeError",
    "KeyError",
    "NameError",
    "ModuleNotFoundError",
    "NotADirectoryError",
    "NotImplementedError",
    "OutOfMemoryError",
    "PermissionError",
    "SyntaxError",
    "TabError",
    "TypeError",
    "UnicodeDecodeError",
    "ValueError",
    "ZeroDivisionError",
}
# Those after which nothing can be trained before somebody has changed something.
PERMANENT = {
    "FileNotFoundError",
    "ImportError",
    "IndentationError",
    "ModuleNotFoundError",
    "SyntaxError",
    "TabError",
}
# The module that a script lacks, and packages that have another name than their module.
LACKED = re.compile(r"^ModuleNotFoundError: No module named '([^'.]+)")
PACKAGES = {
    "PIL": "Pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
# Messages of the kernel about full volumes, which stay full.
FULL = ("No space left on device", "Disk quota exceeded")
# Words in errors of ranks that lost their peer; TensorFlow uses Horovod's in errors of its own.
# Two of them are those of a horovodrun, which a custom command may start, about ranks that failed.
CONSEQUENCES = (
    "HorovodInternalError",
    "Horovod has been shut down",
    "Horovod detected that one or more processes",
    "mpirun failed with exit code",
    # Gloo's, in PyTorch and in JAX; and PyTorch's when rank 0, which keeps its store, has ended.
    "gloo/transport/",
    "failed to recv, got 0 bytes",
    # NCCL's, in PyTorch; its watchdog ends the ranks that wait for another one.
    "ncclRemoteError",
    "remote process exited or there was a network error",
    "Watchdog caught collective operation timeout",
    # CUDA's, of a peer on NVLink.
    "Invalid access of peer GPU memory over nvlink",
)
# The exit code of argparse and other parsers for a wrong command line.
USAGE = 2


class Line(NamedTuple):
    """A line of output, or an exception in it: when it was printed, its rank if that is known."""

    at: float
    rank: int | None
    text: str


class ErrorOutput:
    """Passes on and remembers a launcher's error output; `follow` gets each line of ranks."""

    def __init__(
        self, source: IO[bytes], target: int, follow: Callable[[str], None] = lambda line: None
    ) -> None:
        self._source = source
        self._target = target
        self._follow = follow
        self._lines: deque[Line] = deque(maxlen=LAST_LINES)
        self._tracebacks: deque[Line] = deque(maxlen=LAST_LINES)
        # By rank; None of all whose lines have no tag.
        self._readers: dict[int | None, TracebackReader] = {}
        self._thread = spawn("read-launcher", self._pass_on)

    def find_cause(
        self,
        hosts: Sequence[Host],
        code: int,
        raised: Sequence[Mapping[str, Any]] = (),
        failed: Sequence[Mapping[str, Any]] = (),
    ) -> Cause | None:
        """Return why the launcher ended with `code`; None when nothing says it.

        `raised` and `failed`: the notices of ranks about exceptions (rank/exception_notice.py), and
        about their exit codes and signals (rank/rank_end.py), in this order.
        """
        self._thread.join(DRAIN_WITHIN)
        since = time.monotonic() - LAST_SECONDS
        # Copies, because processes that outlive the launcher may still write.
        recent = [item for item in self._tracebacks.copy() if item.at > since]
        lines = [line for line in self._lines.copy() if line.at > since]
        failed = [n for n in failed if n["at"] > since]
        found = [m for r in RANKS for line in lines if (m := r.search(line.text))]
        # The time does not matter for a rank that failed: it may end long after its exception.
        ranks = {n["rank"] for n in failed} | {int(m["rank"]) for m in found}
        raised = [n for n in raised if n["at"] > since or n["rank"] in ranks]
        # A rank that lost its peer, or that the launcher has ended, may be named before the peer.
        late = {n["rank"] for n in raised if is_consequence(n["text"])}
        late.update(n["rank"] for n in failed if n["status"] == -signal.SIGTERM)
        match = min(found, key=lambda m: int(m["rank"]) in late, default=None)
        # `named` by the launcher; `rank` may also be known from its own notice, below.
        rank = named = int(match["rank"]) if match else None
        number = (match.groupdict().get("signal") if match else None) or "0"
        ends = [n for n in failed if rank in (None, n["rank"])]
        ended = min(ends, key=lambda n: n["rank"] in late, default=None)
        if ended and number == "0":
            # Hydra names no rank.
            rank = ended["rank"]
            status = ended["status"]
            number, code = (str(-status), code) if status < 0 else ("0", status)
        own_words = (n for n in raised if not is_consequence(n["text"]))
        notice = next(own_words, None)
        if notice and (number == "0" or notice["rank"] == rank):
            return _judge(notice["rank"], notice["host"], notice["text"])
        # Ranks that lost their peer: a consequence, unless it is all that there is.
        own = [item for item in recent if not is_consequence(item.text)]
        candidates = own if own or rank is not None else recent
        first = next((t for t in candidates if t.rank is None or named in (None, t.rank)), None)
        if number == "0" and first:
            # The launcher's first rank may have ended only because it lost its peer.
            is_known = first.rank is None and len(own) == len(recent)
            failed_rank = rank if is_known else first.rank
            return _judge(failed_rank, _name_host(failed_rank, hosts), first.text)
        if rank is None:
            return None
        # A broken GPU, whichever rank its failure has ended first. PyTorch's watchdogs abort ranks
        # without an exception of Python, and other lines may be those of any rank.
        notice = next((n for n in raised if _is_broken(n["text"])), None)
        if notice:
            return _judge(notice["rank"], notice["host"], notice["text"])
        line = next((line for line in lines if _is_broken(line.text)), None)
        if line:
            tag = PYTORCH.match(line.text)
            own_rank = int(tag[1]) if tag else line.rank
            text = one_line(line.text, LONGEST_WORDS)
            return _judge(own_rank, _name_host(own_rank, hosts), text)
        words = find_last_words(lines, rank)
        what = f"exit code {code}{words}" if number == "0" else _describe_signal(int(number))
        limits = [n["limit"] for n in failed if n["rank"] == rank and "limit" in n]
        who = _describe_rank(rank, ended["host"] if ended else _name_host(rank, hosts))
        if limits:
            return _out_of_memory(who, limits[0])
        return Cause(who, what, number == "0" and code == USAGE)

    def _pass_on(self) -> None:
        rest = b""
        while True:
            chunk = os.read(self._source.fileno(), 1 << 16)
            if not chunk:
                return
            write(self._target, NOTES.sub(b"", chunk))
            *lines, rest = (rest + chunk).split(b"\n")
            # A line without an end, such as a progress bar's, is kept in part only.
            rest = rest[-4096:]
            for line in lines:
                if not NOTES.match(line + b"\n"):
                    self._look_at(line.decode(errors="replace").rstrip("\r"))

    def _look_at(self, line: str) -> None:
        tag = TAG.match(line)
        now = time.monotonic()
        rank = int(tag[1]) if tag else None
        text = line[tag.end() :] if tag else line
        self._lines.append(Line(now, rank, text))
        self._follow(text)
        if len(self._readers) > MOST_RANKS:
            # A script has made up tags of ranks.
            self._readers.clear()
        raised = self._readers.setdefault(rank, TracebackReader()).take(text)
        if raised:
            self._tracebacks.append(Line(now, rank, one_line(raised, LONGEST_TEXT)))


def find_last_words(lines: Sequence[Line], rank: int) -> str:
    """What a rank wrote last, such as the message of `sys.exit` or argparse; empty if unknown."""
    # Where lines have no tags, it is what any rank wrote last.
    own = rank if any(line.rank is not None for line in lines) else None
    before = takewhile(lambda line: not END.search(line.text), lines)
    texts = [x.text for x in before if x.rank == own and not OF_LAUNCHERS.match(x.text)]
    if not texts or is_consequence(texts[-1]):
        return ""
    return f', after "{one_line(texts[-1], LONGEST_WORDS)}"'


def is_consequence(text: str) -> bool:
    """Whether a rank raised this because it has lost its peer.

    Horovod raises what it raises then for an error of NCCL, too.
    """
    return not find_gpu_problem(text) and any(words in text for words in CONSEQUENCES)


def _is_broken(text: str) -> bool:
    gpu = find_gpu_problem(text)
    return gpu is not None and gpu.is_broken


def _judge(rank: int | None, host: str, text: str) -> Cause:
    who = _describe_rank(rank, host)
    is_full = any(words in text for words in FULL)
    # Some are named with their module.
    name = text.split(":")[0].rpartition(".")[2]
    lacked = LACKED.match(text)
    gpu = None if name in SURE_TO_REPEAT else find_gpu_problem(text)
    if gpu:
        text = f"{text}; {gpu.remedy}"
        broken = host if gpu.is_broken else ""
        return Cause(who, text, gpu.is_permanent, False, gpu.is_permanent, broken)
    # Some have a hint of their own (common/tracebacks.py).
    if lacked and not text.endswith(")"):
        package = PACKAGES.get(lacked[1], lacked[1])
        text += f"; add {package} to requirements.txt, or send the folder that has it (--code)"
    return Cause(who, text, is_full or name in SURE_TO_REPEAT, is_permanent=name in PERMANENT)


def _out_of_memory(who: str, limit: float) -> Cause:
    """The cause of a rank that the kernel has killed because of its container's limit, in MiB."""
    gib = limit / 1024
    more = f"{2 * gib:.0f}Gi" if gib >= 1 else f"{2 * limit:.0f}Mi"
    what = f"out of memory: it used {gib:.1f} of {gib:.1f} GiB; raise "
    what += f"worker.resources.limits.memory to {more}"
    return Cause(who, what, True, is_permanent=True)


def _name_host(rank: int | None, hosts: Sequence[Host]) -> str:
    """The name of a rank's host; empty where it is not known."""
    host = None if rank is None else find_host(rank, hosts)
    return host.name if host else ""


def _describe_rank(rank: int | None, host: str) -> str:
    if rank is None:
        return "a rank: "
    return f"rank {rank} on {host}: " if host else f"rank {rank}: "


def _describe_signal(number: int) -> str:
    try:
        known: str | None = EXPLANATIONS.get(signal.Signals(number))
        name = signal.Signals(number).name
    except ValueError:
        return f"ended by signal {number}"
    return f"ended by {name} ({known})" if known else f"ended by {name}"

"""The scripts of the ranks that run in this worker; rank/start.py registers them.

The worker's main program reads these files to find the scripts that it must ask to end, and those
that are stopped. The process that the launcher started may be a different one: the client of a
fork, or a parent that Hydra needs.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hvd_pods.pod import notices, processes
from hvd_pods.shared import files, paths
from hvd_pods.shared.contract import FENCE, RUN_ID

RANKS_FOLDER = f"{paths.GENERATED}/ranks"
# Scripts do not use descriptors from this number on.
MIN_STACK_DESCRIPTOR = 512
# At this real-time signal, a rank writes its Python stack to a file. No known library uses this
# signal: C libraries use the first ones, and Java, Go and MPI use none of them.
STACK_SIGNAL = signal.SIGRTMAX - 2


class RankScript(namedtuple("RankScript", ["rank", "pid", "began", "notices", "fence", "run"])):
    """A rank's script: its process, the address of its master for notices, and the run's identity.

    `began` is the start time of the process, which distinguishes it from another process with the
    same number. It is empty if the process had ended before it was registered.
    """


def register(rank: int, pid: int) -> None:
    """Register this process as the script of a rank, or as a process that becomes the script.

    If that fails, the rank runs without an entry, and gets no request to end gracefully.
    """
    address = os.environ.get(notices.ADDRESS, "")
    fence = os.environ.get(FENCE, "")
    run = os.environ.get(RUN_ID, "")
    beside = os.path.join(RANKS_FOLDER, f".{rank}")
    try:
        began = processes.read_stat(pid).began
    except OSError:
        # The script has already ended. The master still gets a notice of its exit code.
        began = ""
    try:
        _make_folder()
        # The address contains a secret.
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(RankScript(rank, pid, began, address, fence, run), file)
        # Replace the file in one step, because the worker may read it at any moment.
        os.replace(beside, os.path.join(RANKS_FOLDER, str(rank)))
    except OSError as problem:
        # This is not a worker, or its memory volume is full.
        if os.path.exists(paths.GENERATED):
            print(f"[hvd] rank {rank} cannot be terminated gracefully: {problem}", flush=True)


def _make_folder() -> None:
    """Create RANKS_FOLDER.

    Raises FileNotFoundError outside of a worker, where its parent is missing.
    """
    with suppress(FileExistsError):
        os.mkdir(RANKS_FOLDER)


def stack_file(rank: int) -> str:
    """Return the file to which a rank writes its Python stack on request (worker/stacks.py)."""
    return os.path.join(RANKS_FOLDER, f"{rank}.stack")


def open_stack_file(rank: int) -> int:
    """Open `stack_file` in the rank; return its descriptor, or standard error's without room.

    The descriptor has a number from MIN_STACK_DESCRIPTOR on, and is closed when another program is
    executed.
    """
    try:
        _make_folder()
        # Append: worker/stacks.py empties the file before each stack.
        with open(stack_file(rank), "ab") as file:
            return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, MIN_STACK_DESCRIPTOR)
    except OSError:
        return 2


def running() -> Iterator[RankScript]:
    """Yield the scripts that have not ended, in the order of their ranks."""
    names = files.list_names(RANKS_FOLDER)
    for rank in sorted(int(name) for name in names if name.isdecimal()):
        script = find(rank)
        try:
            process = processes.read_stat(script.pid) if script else None
        except OSError:
            continue
        if script and process and not process.has_ended and process.began == script.began:
            yield script


def has_signal(pid: int, signal_: int, *sets: str) -> bool:
    """Return whether a signal is in one of these signal sets of a process.

    The sets are named as in /proc/PID/status (proc(5)): SigCgt, SigBlk. The sets of an ended
    process are empty.
    """
    with suppress(OSError):
        for line in files.read(f"/proc/{pid}/status").decode().splitlines():
            name, _, mask = line.partition(":")
            if name in sets and int(mask, 16) >> (signal_ - 1) & 1:
                return True
    return False


def find(rank: int) -> RankScript | None:
    """Return the last script that was registered for a rank, whether it has ended or not.

    Return None without an entry, or for an entry that `register` did not write.
    """
    try:
        return RankScript(*json.loads(files.read(os.path.join(RANKS_FOLDER, str(rank)))))
    except (OSError, ValueError, TypeError):
        # A script may have written the file.
        return None


def ask_to_end(script: RankScript) -> bool:
    """Send SIGTERM to a script at most once: a second one might end it.

    Return False if it sends none, because it has sent one before or the script has ended. Raises
    OSError where the memory volume is full.
    """
    try:
        os.close(os.open(_request_path(script), os.O_CREAT | os.O_EXCL))
        os.kill(script.pid, signal.SIGTERM)
    except (FileExistsError, ProcessLookupError):
        return False
    return True


def was_asked_to_end(script: RankScript) -> bool:
    """Return whether `ask_to_end` has sent SIGTERM to this script."""
    return os.path.exists(_request_path(script))


def _request_path(script: RankScript) -> str:
    return os.path.join(RANKS_FOLDER, f"{script.rank}.{script.pid}.{script.began}.asked")


@contextmanager
def waiting() -> Iterator[None]:
    """Mark this process, for a `with` block, as waiting to report the end of its script.

    Raises OSError where the memory volume is full.
    """
    marker = os.path.join(RANKS_FOLDER, f"{os.getpid()}.waits")
    os.close(os.open(marker, os.O_CREAT))
    try:
        yield
    finally:
        os.unlink(marker)


def is_any_waiting() -> bool:
    """Return whether a rank waits to report the end of its script; killed ranks do not count."""
    for name in files.list_names(RANKS_FOLDER):
        pid, _, end = name.partition(".")
        if end == "waits" and os.path.exists(f"/proc/{pid}"):
            return True
    return False


def send(script: RankScript, answer_timeout_seconds: float, **content: object) -> None:
    """Send a notice about a rank to its master, which must respond within the timeout.

    Raises OSError when it does not, and ValueError for a script whose master takes no notices.
    """
    content = {"worker": socket.gethostname(), "rank": script.rank, **content}
    notices.send(script.notices, script.fence, answer_timeout_seconds, **content)


def notify(script: RankScript, **content: object) -> bool:
    """Send a notice about a rank to its master, if the master takes notices.

    Return False for a failure, which is logged.
    """
    if not script.notices:
        return True
    try:
        send(script, notices.NOTICE_SEND_TIMEOUT_SECONDS, **content)
    except (OSError, ValueError) as problem:
        # Imported here: each rank imports this module, and few send notices.
        from hvd_pods.pod.reporting import log

        notice = f"the notice {content.get('kind')} about rank {script.rank}"
        log(f"cannot send the master {notice}: {problem}")
        return False
    return True

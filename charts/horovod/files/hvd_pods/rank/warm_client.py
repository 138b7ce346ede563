"""The client of a warm start: the process that the launcher started stays; a fork runs the script.

The client hands over everything that a started program would inherit, passes on signals, and ends
as the rank ends. When the client is killed, its connection closes, and the fork's guard kills the
rank. Messages are JSON with file descriptors attached.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
from contextlib import suppress
from types import FrameType

from hvd_pods.rank.child_rank import IGNORED_BY_PYTHON
from hvd_pods.rank.warm_checks import ColdStart, PythonProgram, check_command, check_use
from hvd_pods.shared import files, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Sequence

    Message = Dict[str, Any]

# The name of the process that guards a warm rank.
GUARD = "hvd-guard"
# The worker writes this file. Without it, ranks start cold and log no reason.
DESCRIPTION = f"{paths.GENERATED}/warm.json"
WARM_SOCKET = f"{paths.GENERATED}/warm.sock"
# This file exists while the warm process has its modules imported.
READY = f"{paths.GENERATED}/warm.ready"
# A client sends this when it is ready to pass on signals: no signal has this number.
GO = bytes([0])
# The kernel's limit for one message (SCM_MAX_FD). One of the descriptors carries the JSON.
MAX_DESCRIPTORS = 253
# The timeout for an import that is still running: a cold start would import the same again.
WARM_TIMEOUT_SECONDS = 120.0
# If a process caused one of these signals itself, it must not return to the fault.
NOT_PASSED_ON = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}


def run(
    command: Sequence[str], rank: int, started: Callable[[int], None], logs_reason: bool
) -> int | None:
    """Run a rank's command in a fork of the warm process; return the code, or minus the signal.

    `started` gets the process ID of the fork. Return None if the command must start cold. If
    `logs_reason`, log the reason, unless this worker has no warm process.
    """
    try:
        description = json.loads(files.read(DESCRIPTION))
    except FileNotFoundError:
        return None
    try:
        program = check_command(command, os.environ, description)
        if not os.path.exists(READY):
            check_use(program)
        with _connect() as connection:
            _ask(connection, rank, command, program)
            return _follow(connection, started)
    except ColdStart as reason:
        if logs_reason:
            print(
                f"[hvd] ranks on {socket.gethostname()} start cold: {reason} (`launch.preload`)",
                flush=True,
            )
        return None


def _connect() -> socket.socket:
    """Connect to the warm process. Raises ColdStart if no process of this user accepts."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(WARM_TIMEOUT_SECONDS)
    try:
        connection.connect(WARM_SOCKET)
    except OSError as problem:
        connection.close()
        raise ColdStart(f"the warm process does not answer: {problem}") from problem
    if peer_uid(connection) != os.geteuid():
        connection.close()
        raise ColdStart(f"{WARM_SOCKET} belongs to another user")
    return connection


def _ask(
    connection: socket.socket, rank: int, command: Sequence[str], program: PythonProgram
) -> None:
    """Request a rank, which waits for this process to be ready. Raises ColdStart."""
    numbers = inheritable_descriptors()
    if not {0, 1, 2}.issubset(numbers):
        raise ColdStart("one of its standard streams is closed")
    if len(numbers) >= MAX_DESCRIPTORS:
        raise ColdStart(f"the rank has {len(numbers)} open files")
    try:
        request = {**describe(command, program), "rank": rank, "descriptors": numbers}
        send(connection, request, numbers)
        answer, _ = receive(connection)
    except (OSError, ValueError) as problem:
        raise ColdStart(f"the warm process does not answer: {problem}") from problem
    if "cold" in answer:
        raise ColdStart(answer["cold"])


def describe(command: Sequence[str], program: PythonProgram) -> dict[str, Any]:
    """Describe for JSON what a program would find if it started in place of this process.

    warm/rank_fork.py reads the description. `first path` is the first entry of sys.path, `cpus` are
    the CPUs of this process, and `ignored` and `blocked` are the numbers of signals. `limits` has
    the soft and the hard limit of each resource but RLIMIT_OFILE, which is another name of
    RLIMIT_NOFILE.
    """
    mask = os.umask(0)
    os.umask(mask)
    ignored = {
        number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN
    }
    limits = [
        name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
    ]
    return {
        "command": list(command),
        "program": program._asdict(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "first path": first_path(program),
        "umask": mask,
        "cpus": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "ignored": sorted(ignored - IGNORED_BY_PYTHON),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
    }


def first_path(program: PythonProgram) -> str:
    """Return sys.path[0] for a program in the current folder."""
    if program.kind == "file":
        return os.path.dirname(os.path.realpath(str(program.target)))
    if program.kind == "module":
        return os.getcwd()
    return ""


def inheritable_descriptors() -> list[int]:
    """Return the open files that a started program inherits, including Hydra's PMI_FD."""
    numbers = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                numbers.append(int(name))
        except OSError:
            # The descriptor through which the folder was read.
            continue
    return sorted(numbers)


def _follow(connection: socket.socket, started: Callable[[int], None]) -> int:
    """Pass on signals until the rank ends; return its exit code, or minus its signal's number."""
    connection.settimeout(None)

    def pass_on(number: int, frame: FrameType | None) -> None:
        # After the rank's end, the connection may be closed.
        with suppress(OSError):
            connection.send(bytes([number]))

    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for number in signal.valid_signals() - NOT_PASSED_ON:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        connection.sendall(GO)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        answer, _ = receive(connection)
        started(answer["pid"])
        answer, _ = receive(connection)
    except (OSError, ValueError):
        # The guard was killed, and the rank with it.
        return -signal.SIGKILL
    return int(answer["status"])


def send(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message with at most MAX_DESCRIPTORS - 1 descriptors. Raises OSError."""
    # In a separate file, so that a receiver only has to wait for one byte.
    with open(os.memfd_create("message"), "w", encoding="ascii") as file:
        file.write(json.dumps(message))
        file.flush()
        socket.send_fds(connection, [b"m"], [file.fileno(), *descriptors])


def receive(connection: socket.socket) -> tuple[Message, list[int]]:
    """Return a message and its descriptors, which the caller has to close.

    Raises ConnectionError when the other end has closed, OSError when it sends nothing within the
    connection's timeout, and ValueError for a message that is not JSON.
    """
    # Programs that a rank starts must not inherit these descriptors.
    flags = socket.MSG_CMSG_CLOEXEC
    _, received, _, _ = socket.recv_fds(connection, 1, MAX_DESCRIPTORS, flags)
    if not received:
        raise ConnectionResetError("the other side closed the connection")
    body, *descriptors = received
    try:
        with open(body, encoding="ascii") as file:
            file.seek(0)
            message: Message = json.load(file)
    except (OSError, ValueError):
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors


def peer_uid(connection: socket.socket) -> int:
    """Return the user ID of the process at the other end, as the kernel reports it."""
    credentials = struct.Struct("3i")
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(content)[1])

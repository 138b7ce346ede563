"""The process between the agent and a program that it started, one for each agent connection.

It is the subreaper of the program and of all its descendants, so that no process outlives the agent
connection. When the program ends, it kills the program's descendants, and then reports how the
program ended. It dies with the agent. Its descendants then become children of the worker's main
program, which ends with the agent, and so does the container.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import signal
import sys
import traceback

from hvd_pods.pod import processes
from hvd_pods.shared import files
from hvd_pods.shared.paths import PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, NoReturn, Sequence

# The signals that the agent passes on to the program.
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Exit codes of shells for a program that cannot run, and for one that does not exist.
CANNOT_RUN = 126
NOT_FOUND = 127
# The first arguments of a request for a program of the chart.
OWN_PROGRAM = ("python3", "-I", "-S")
# The descriptor on which the agent receives the program's wait status.
STATUS = 3


def start(argv: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
    """Fork a supervisor; return its process ID.

    `streams` are the descriptors of the program's standard input, output and errors, and the one
    for the program's wait status as text. The caller closes its own copies.
    """
    agent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (*PASSED_ON, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _arrange(streams)
        with contextlib.suppress(ImportError, OSError):
            processes.set_process_option(processes.PR_SET_CHILD_SUBREAPER, 1)
            processes.die_with_parent(agent)
        code = _supervise(argv, environment)
    except BaseException:  # noqa: BLE001 - a fork of the agent must not go on as the agent
        traceback.print_exc()
    finally:
        os._exit(code)


def _arrange(streams: Sequence[int]) -> None:
    """Set the descriptors 0 to 3, and close all others: they belong to other connections."""
    # The agent may be at its limit of open files. Listing them needs one more.
    os.close(0)
    for number in map(int, files.list_names("/proc/self/fd")):
        if number >= STATUS and number not in streams:
            with contextlib.suppress(OSError):
                os.close(number)
    # Move them above their final numbers, so that none overwrites another one.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STATUS + 1) for descriptor in streams]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number, inheritable=number != STATUS)
    os.closerange(STATUS + 1, max(*high, *streams) + 1)


def _supervise(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    os.setsid()
    program = os.fork()
    if program == 0:
        _become(argv, environment)
    for number in PASSED_ON:
        signal.signal(number, lambda received, _: _pass_on(program, received))
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(STATUS):
        os.dup2(nothing, standard)
    status = _wait(program)
    processes.end_descendants()
    with contextlib.suppress(OSError):
        os.write(STATUS, str(status).encode())
    return 0


def _pass_on(program: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program, number)


def _wait(program: int) -> int:
    """Wait for the program, and reap its orphans meanwhile. Return the program's wait status."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            return status


def _become(argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the program, in a session and a process group of its own."""
    code = CANNOT_RUN
    try:
        os.close(STATUS)
        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        module = find_own_module(argv)
        if module:
            code = _run(module, argv[len(OWN_PROGRAM) :])
        else:
            code = NOT_FOUND
            path = _find(argv[0])
            code = CANNOT_RUN
            os.execv(path, list(argv))
    except OSError as problem:
        print(f"[hvd] error: cannot run {argv[0]}: {problem}", file=sys.stderr)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
    except BaseException:  # noqa: BLE001 - shown as Python shows it
        code = 1
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _find(program: str) -> str:
    path = files.which(program)
    if path is None:
        raise FileNotFoundError(f"there is no such program on {os.uname().nodename}")
    return path


def find_own_module(argv: Sequence[str]) -> str:
    """Return the name of the chart's module that these arguments run; empty for other programs.

    A fork of the agent runs the module at once, whereas a new Python takes 15 ms to start.
    """
    if tuple(argv[: len(OWN_PROGRAM)]) != OWN_PROGRAM or len(argv) <= len(OWN_PROGRAM):
        return ""
    path = argv[len(OWN_PROGRAM)]
    if not path.startswith(f"{PROGRAMS}/") or not path.endswith(".py"):
        return ""
    name = path[len(PROGRAMS) + 1 : -len(".py")].replace("/", ".")
    return f"hvd_pods.{name}" if name.replace(".", "").replace("_", "").isalnum() else ""


def _run(module: str, arguments: Sequence[str]) -> int:
    sys.argv = list(arguments)
    main = getattr(importlib.import_module(module), "main", None)
    return int(main() or 0) if main else 0

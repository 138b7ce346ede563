"""Turns a fork of the warm process into the rank: sets up Python, and runs the script."""

from __future__ import annotations

import fcntl
import functools
import importlib
import linecache
import os
import resource
import runpy
import shutil
import signal
import sys
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, TextIO

from hvd_pods.shared import paths


def take_over(request: dict[str, Any], received: list[int]) -> None:
    """Set the state that a started program inherits, as rank/warm_client.py describes it.

    `received` are the rank's open files, for the numbers in `descriptors` of the request. Raises
    OSError or ValueError when the kernel refuses something, such as a limit above the hard one.
    """
    os.chdir(request["folder"])
    _take_descriptors(request["descriptors"], received)
    os.umask(request["umask"])
    os.sched_setaffinity(0, request["cpus"])
    os.setpriority(os.PRIO_PROCESS, 0, request["nice"])
    for name, limits in request["limits"].items():
        resource.setrlimit(getattr(resource, name), tuple(limits))
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])


def _take_descriptors(numbers: list[int], files: list[int]) -> None:
    """Give each file the number that it has in the client; 0 to 2 are among these numbers."""
    # Move the files above all numbers first: a file's number may be the target of another file.
    above = max([*numbers, 2]) + 1
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for file in files]
    for file in {*files, 0, 1, 2}:
        os.close(file)
    for number, file in zip(numbers, moved):
        os.dup2(file, number)
        os.close(file)


def set_up_python(request: dict[str, Any]) -> None:
    """Set what Python sets when it starts a program, and what imported modules copied from it."""
    program = request["program"]
    python = request["command"][0]
    sys.executable = shutil.which(python) or python
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = request["command"]
    first = {"file": str(program["target"]), "code": "-c", "module": "-m"}[program["kind"]]
    sys.argv[:] = [first, *program["arguments"]]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, request["first path"])
    # Last, so that the script's own modules of these names come first.
    sys.path.append(paths.LIBRARY)
    importlib.invalidate_caches()
    _set_buffering(program["unbuffered"] or bool(os.environ.get("PYTHONUNBUFFERED")))
    _correct_multiprocessing()
    renew_randomness()


def _set_buffering(unbuffered: bool) -> None:
    """Write to a terminal by lines, and to other files in blocks or at once, as Python does.

    The streams stay the same, because imported modules may have kept them.
    """
    output: Any = sys.stdout
    output.reconfigure(line_buffering=output.isatty())
    if unbuffered:
        for stream in (output, sys.stderr):
            vars(stream)["write"] = functools.partial(_write_at_once, stream, stream.write)


def _write_at_once(stream: TextIO, write: Callable[[str], int], text: str) -> int:
    written = write(text)
    stream.flush()
    return written


def _correct_multiprocessing() -> None:
    """Renew the values that multiprocessing stored for the process that imported it."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        # The values that multiprocessing sets at its import.
        vars(process)["ORIGINAL_DIR"] = os.getcwd()
        vars(process)["current_process"]().authkey = os.urandom(32)
    spawn = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        vars(spawn)["set_executable"](sys.executable)


def renew_randomness() -> None:
    """Give the rank its own random states; Python has renewed that of `random` in the fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        vars(numpy_random)["seed"]()
    torch = sys.modules.get("torch")
    # An unused generator has the same fixed state in each new process.
    if torch is not None and not bool(
        (torch.default_generator.get_state() == torch.Generator().get_state()).all()
    ):
        torch.seed()
    operations = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    if operations is not None and vars(operations).get("global_generator") is not None:
        vars(operations)["set_global_generator"](
            vars(operations)["Generator"].from_non_deterministic_state()
        )
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if context is not None and getattr(context, "_rng", None) is not None:
        context._rng.seed()
    keras = sys.modules.get("keras.src.backend.common.global_state")
    if keras is not None:
        # Keras creates it again on its next use, from the renewed `random`.
        vars(keras)["set_global_attribute"]("global_seed_generator", None)


def run(
    program: dict[str, Any], main: dict[str, Any], raised: Callable[[BaseException], None]
) -> None:
    """Run the program in the namespace of the module `__main__`, as Python itself would.

    `raised` gets an uncaught exception of this process before Python reports it. Then SystemExit is
    raised with the code 1. The program's own SystemExit and KeyboardInterrupt are raised unchanged:
    Python ends this process by them.
    """
    prepare_main(program, main)
    process = os.getpid()
    error = _execute(program, main)
    if error is None:
        return
    error.__traceback__ = _drop_own_frames(error.__traceback__)
    sys.last_type = type(error)
    sys.last_value = error
    sys.last_traceback = error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    # A process that the script forked may fail without the rank.
    if os.getpid() == process:
        raised(error)
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        # Python ends itself by SIGINT, after its exit handlers.
        sys.excepthook = lambda *_: None
        raise error
    raise SystemExit(1)


def _execute(program: dict[str, Any], main: dict[str, Any]) -> BaseException | None:
    """Run the program. Return the uncaught exception, or None.

    Raise the program's SystemExit.
    """
    try:
        if program["kind"] == "module":
            runpy._run_module_as_main(program["target"])  # type: ignore[attr-defined]
        else:
            path = main.get("__file__")
            source = Path(path).read_bytes() if path else program["target"] + "\n"
            if not path and sys.version_info >= (3, 13):
                # Tracebacks of these versions show the lines of -c.
                lines = source.splitlines(keepends=True)
                linecache.cache["<string>"] = (len(source), None, lines, "<string>")
            code = compile(source, path or "<string>", "exec", dont_inherit=True)
            exec(code, main)  # noqa: S102 - this is what a rank is for
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - reported as Python reports it
        return error
    return None


def prepare_main(program: dict[str, Any], main: dict[str, Any]) -> None:
    """Set in `__main__` the names that Python sets there before it runs a program."""
    special = {name: main[name] for name in ("__name__", "__package__", "__builtins__", "__spec__")}
    annotations: dict[str, Any] = {"__annotations__": {}} if sys.version_info < (3, 14) else {}
    main.clear()
    main.update(special, __doc__=None, __loader__=BuiltinImporter, **annotations)
    if program["kind"] == "file":
        # Python does not normalize it.
        path = os.path.join(os.getcwd(), program["target"])
        main.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))


def _drop_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this module at its beginning."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace

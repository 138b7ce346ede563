"""A script cannot tell whether its rank is a fork: each runs both ways, with the same result."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.hvd_pods.warm.worker import Worker

pytestmark = pytest.mark.slow

NAMES = """
import json, os, sys
import framework
print(__name__, __file__, __package__, __spec__ and __spec__.name, __doc__, __cached__)
print(type(__loader__).__name__)
print(sorted(globals()), __builtins__ is sys.modules["builtins"])
print(sys.modules["__main__"].__dict__ is globals())
print(sys.argv, sys.path, sys.executable, getattr(sys, "orig_argv", ""), sys.flags)
print(os.getcwd(), sorted(os.environ.items()), sys.warnoptions, sys.dont_write_bytecode)
"""
STREAMS = """
import os, sys
import framework
for name in ("stdin", "stdout", "stderr"):
    stream = getattr(sys, name)
    print(name, stream.name, stream.mode, stream.encoding, stream.errors, stream.newlines,
          stream.isatty(), stream is getattr(sys, f"__{name}__"))
print("lines", sys.stdin.read().splitlines())
framework.logger.warning("by a handler of the import")
print("in a block", end=" ")
os.write(1, b"at once ")
sys.stdout.buffer.write(b"bytes ")
os.write(2, b"errors ")
print("an error", end="", file=sys.stderr)
"""
LANGUAGE = """
import framework, pickle, subprocess, warnings
class Own: pass
print(Own, type(pickle.loads(pickle.dumps(Own()))) is Own)
x: int = 1
print(globals().get("__annotations__"), __import__("__main__").__annotations__)
print(eval("1 if 0 else print.__name__"), 3 / 2)
warnings.warn("careful")
print(subprocess.run(["sh", "-c", "echo out; exit 5"], stdout=-1))
"""
PROCESS = """
import os, resource, signal, threading
import framework
print(os.umask(0), os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)))
print({n: signal.getsignal(n) for n in sorted(signal.valid_signals())})
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
print([resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n[:7] == "RLIMIT_"])
opened = [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
# All but the file for the rank's Python stack.
print([n for n in opened if not os.readlink(f"/proc/self/fd/{n}").endswith(".stack")])
# A leader of a group could not begin a session, for instance.
print(os.getpgrp() == os.getpid(), os.setsid() == os.getpid())
print(threading.enumerate()[0].name, len(open("/proc/self/comm").readlines()))
"""
SCRIPTS = {
    "names": NAMES,
    "streams": STREAMS,
    "process": PROCESS,
    "language": LANGUAGE,
    "atexit": (
        "import atexit, framework, threading\n"
        "atexit.register(print, 'last')\n"
        "ended = threading.main_thread().join\n"
        "threading.Thread(target=lambda: (ended(), print('thread'))).start()\n"
        "print('script')"
    ),
    "terminated": "import os, signal, framework; os.kill(os.getpid(), signal.SIGTERM)",
    "exec": "import os, sys; print('before', flush=True); os.execvp('echo', ['echo', 'after'])",
}
POOL = """
import framework, multiprocessing, os, sys
def square(x):
    return x * x, __name__ in ("__main__", "__mp_main__")
if __name__ == "__main__":
    print(multiprocessing.process.ORIGINAL_DIR, multiprocessing.spawn.get_executable())
    os.chdir("/")
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.map(square, [1, 2, 3]))
"""


def both(
    cold: Worker, hot: Worker, *command: str, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a new process and in a fork; returns the result, which is the same.

    If the fork had been refused, its output would have the reason.
    """
    results = [worker.run(*command, **options) for worker in (cold, hot)]
    outputs = []
    for worker, done in zip((cold, hot), results, strict=True):
        texts = (done.stdout, done.stderr)
        outputs.append([text.decode().replace(str(worker.root), "ROOT") for text in texts])
    assert outputs[0] == outputs[1]
    assert results[0].returncode == results[1].returncode
    return results[1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs_in_a_fork_as_in_a_new_process(
    folder: Path, cold_worker: Worker, warm_worker: Worker, name: str
) -> None:
    (folder / "scripts").mkdir()
    (folder / "scripts" / "train.py").write_text(SCRIPTS[name])
    words = ["python", "scripts/train.py", "--a", "b c"]
    done = both(cold_worker, warm_worker, *words, input=b"1\n2\n")
    assert done.returncode == (-signal.SIGTERM if name == "terminated" else 0)


@pytest.mark.parametrize("option", ["-u", "-uc", "-c"])
def test_program_of_an_option_runs_as_in_a_new_process(
    folder: Path, cold_worker: Worker, warm_worker: Worker, option: str
) -> None:
    names = NAMES.replace("__file__, ", "").replace(", __cached__", "")
    annotations = 'globals().get("__annotations__"), __import__("__main__").__annotations__'
    program = f"{names}x: int = 1\nprint({annotations})\n{STREAMS}\nraise SystemExit(1 / 0)"
    words = [option, program] if option[-1] == "c" else [option, "train.py"]
    (folder / "train.py").write_text(program)
    done = both(cold_worker, warm_worker, "python3", *words, "an argument")
    order = b"in a block at once bytes" if "u" in option else b"at once "
    assert order in done.stdout


def test_module_runs_as_in_a_new_process(
    folder: Path, cold_worker: Worker, warm_worker: Worker
) -> None:
    package = folder / "own"
    package.mkdir()
    (package / "__init__.py").write_text("print(__name__)")
    (package / "beside.py").write_text("value = 7")
    script = NAMES.replace("__loader__", "__spec__")
    script = f"from .beside import value\nprint(value)\n{script}raise KeyError('k')"
    (package / "train.py").write_text(script)
    both(cold_worker, warm_worker, "python3", "-m", "own.train", "an argument")


def test_script_behind_a_link_imports_from_its_own_folder(
    folder: Path, cold_worker: Worker, warm_worker: Worker
) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "train.py").write_text("import beside, framework")
    (folder / "project" / "beside.py").write_text("print(__file__)")
    (folder / "link.py").symlink_to("project/train.py")
    done = both(cold_worker, warm_worker, "python3", "link.py")
    assert b"project/beside.py" in done.stdout


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works(
    folder: Path, cold_worker: Worker, warm_worker: Worker, method: str
) -> None:
    """The warm process has imported it in another folder, to which `spawn` would go."""
    (folder / "train.py").write_text(POOL)
    done = both(cold_worker, warm_worker, "python3", "train.py", method)
    assert b"[(1, True), (4, True), (9, True)]" in done.stdout


def test_inherited_state_reaches_the_script(
    folder: Path, cold_worker: Worker, warm_worker: Worker
) -> None:
    """The mask of new files, the priority, the CPUs, limits and signals."""

    def set_up() -> None:
        os.umask(0o027)
        os.nice(3)
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})

    (folder / "train.py").write_text(PROCESS)
    done = both(cold_worker, warm_worker, "python3", "train.py", preexec_fn=set_up)
    text = done.stdout.decode()
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + 3, 19)
    assert f"23 {nice} [{max(os.sched_getaffinity(0))}]" in text
    assert "(200, 300)" in text
    assert "SIGUSR2" in text.splitlines()[3]


def test_open_files_of_the_launcher_reach_the_script_and_nothing_else(
    folder: Path, cold_worker: Worker, warm_worker: Worker
) -> None:
    """Hydra's ranks write to the descriptor in PMI_FD."""
    (folder / "train.py").write_text(f"{PROCESS}os.write(157, b'from the rank ')\n")
    reader, writer = os.pipe()
    high = os.dup2(writer, 157)
    done = both(cold_worker, warm_worker, "python3", "train.py", pass_fds=[high, writer])
    os.close(writer)
    os.close(high)
    with os.fdopen(reader, "rb") as pipe:
        # It ends: neither the guard nor the warm process has the other end.
        assert pipe.read() == b"from the rank " * 2
    assert "'157'" in done.stdout.decode()

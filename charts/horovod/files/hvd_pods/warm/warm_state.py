"""The state of the warm process, and whether a fork of it equals a newly started process."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from importlib.machinery import FileFinder, SourceFileLoader, all_suffixes
from pathlib import Path
from typing import Any, Iterator, Sequence

from hvd_pods.shared import files, paths

# Variables that tell libraries which CPUs to run their threads on, of those at load time.
PLACE_THREADS = ("OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
# The timeout for the end of threads that an import started.
THREADS_END_TIMEOUT_SECONDS = 1.0


class WarmState:
    """The state of the warm process after it imported the modules.

    `problem` is the reason why no rank can be a fork of it, or None. `opened` maps the descriptors
    that imports opened to their targets. `tops` are the imported top-level modules.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self.cpus = os.sched_getaffinity(0)
        self._before = open_descriptors()
        self.opened: dict[int, str] = {}
        self.tops: set[str] = set()
        self._files: dict[str, int] = {}
        # Variables that imports changed: values before and after.
        self._variables: dict[str, tuple[str | None, str | None]] = {}

    def load(self, modules: Sequence[str]) -> None:
        """Import the modules. If one fails, that is the problem of all later ranks."""
        # Garbage collection takes a tenth of the time of an import. Later, it would write to pages
        # that the forks share.
        gc.disable()
        before = dict(os.environ)
        try:
            self._import(modules)
            self._variables = {
                name: (before.get(name), os.environ.get(name))
                for name in {*before, *os.environ}
                if before.get(name) != os.environ.get(name)
            }
            if self.problem is None:
                # Only now: a script may set variables before its first optimizer.
                self._make_optimizer()
            self._note()
        finally:
            gc.freeze()
            gc.enable()
        if threads() > 1:
            # Libraries that support forks, such as OpenBLAS, end their threads before one.
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

    def _import(self, modules: Sequence[str]) -> None:
        for name in modules:
            try:
                importlib.import_module(name)
            except BaseException as problem:  # noqa: BLE001 - whatever a module raises
                self.problem = f"cannot import {name}: {type(problem).__name__}: {problem}"
                return

    def _make_optimizer(self) -> None:
        """Make PyTorch import the modules that it imports with the first optimizer.

        These are some 900 modules (torch._dynamo, SymPy, Triton). They took 1.9 s with PyTorch 2.11
        on a Xeon, and a part of the 5 s from a launch to the first step on a machine with an H200.
        """
        torch: Any = sys.modules.get("torch")
        if not hasattr(torch, "optim"):
            return
        try:
            torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        except Exception as problem:  # noqa: BLE001 - whatever a version of PyTorch raises
            self.problem = f"cannot make an optimizer: {type(problem).__name__}: {problem}"

    def _note(self) -> None:
        """Record the modules that are imported and the files that are open now."""
        self.tops = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
        self._files = {file: _find_change_time(file) for file in _list_own_files()}
        # Record this now: during a request, the files of the rank are open here, too.
        now = open_descriptors()
        self.opened = {
            descriptor: path for descriptor, path in now.items() if descriptor not in self._before
        }

    def add_variables(self, environment: dict[str, str]) -> None:
        """Change a rank's variables as its own imports would have changed them."""
        for name, (before, after) in self._variables.items():
            if environment.get(name) == before:
                environment.pop(name, None)
                if after is not None:
                    environment[name] = after

    def find_reason(self, request: dict[str, Any]) -> str | None:
        """Return the reason why this rank must start cold, or None.

        Raises LookupError for a request without a part. `request` is the description from
        rank/warm_client.py.
        """
        for reason in self._reasons(request):
            if reason:
                return reason
        return None

    def _reasons(self, request: dict[str, Any]) -> Iterator[str | None]:
        """Yield each reason, or None, as soon as it is known: later checks may take longer."""
        yield self.problem
        yield _find_threads()
        # A GPU's context cannot be used in a fork.
        gpus = [path for path in self.opened.values() if path.startswith(GPU_DEVICES)]
        if gpus:
            yield f"an imported module uses the GPU ({gpus[0]})"
        taken = sorted(self.opened.keys() & set(request["descriptors"]))
        if taken:
            yield f"an imported module uses descriptor {taken[0]}"
        yield self._find_cpus(request)
        if not getattr(sys.flags, "safe_path", False):
            yield self._find_shadow(request["first path"] or request["folder"])
        yield self._find_shadow(f"{paths.PACKAGES}/current/site", is_complete=False)
        changed = [file for file, time_ in self._files.items() if _find_change_time(file) != time_]
        if changed:
            yield f"{changed[0]} has changed since it was imported"
        own_paths = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
        relative = [path for path in own_paths if path and not path.startswith("/")]
        if relative:
            yield f"PYTHONPATH has the relative path {relative[0]}"

    def _find_cpus(self, request: dict[str, Any]) -> str | None:
        """Return a text if the rank has other CPUs than those that imports counted, or None.

        A rank may have other CPUs if it sets its number of threads, but not their places.
        """
        environment = request["environment"]
        placed = [name for name in PLACE_THREADS if name in environment]
        is_chosen = "OMP_NUM_THREADS" in environment and not placed
        if set(request["cpus"]) == self.cpus or is_chosen:
            return None
        remedy = f"unset {placed[0]}" if placed else "set OMP_NUM_THREADS in `worker.env`"
        return f"the rank is bound, and imports have counted the CPUs of the container: {remedy}"

    def _find_shadow(self, folder: str, is_complete: bool = True) -> str | None:
        """Return the module in this folder that shadows an imported one; None if there is none.

        Unless `is_complete`, a package may have parts in other folders, as namespaces have.
        """
        finder = FileFinder(folder, (SourceFileLoader, all_suffixes()))
        names = {name.partition(".")[0] for name in files.list_names(folder)}
        for name in sorted(names & self.tops.difference(sys.builtin_module_names)):
            spec = finder.find_spec(name)
            if spec and (spec.origin or not is_complete):
                place = spec.origin or f"{folder}/{name}"
                return f"{place} takes precedence over the imported module {name}"
        return None


def _list_own_files() -> Iterator[str]:
    """Yield the files of imported modules that may change while the pod runs: not Python's own."""
    prefixes = (sys.prefix, sys.base_prefix)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith(prefixes):
            yield file


def _find_change_time(file: str) -> int:
    """Return when a file changed, in nanoseconds since the epoch; 0 if the file does not exist."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


def threads() -> int:
    """Return the number of this process's threads."""
    return len(os.listdir("/proc/self/task"))


def _find_threads() -> str | None:
    """Return which threads run beside the main one, or None if they end within a second.

    Threads do not survive a fork, and their locks would stay locked.
    """
    until = time.monotonic() + THREADS_END_TIMEOUT_SECONDS
    while threads() > 1:
        if time.monotonic() > until:
            main_thread = str(os.getpid())
            names = [
                (task / "comm").read_text().strip()
                for task in Path("/proc/self/task").iterdir()
                if task.name != main_thread
            ]
            shown = ", ".join(sorted(set(names)))
            return f"the imported modules run {len(names)} threads ({shown})"
        time.sleep(0.01)
    return None


def open_descriptors() -> dict[int, str]:
    """Return the open files of this process: the target of each number."""
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            # The descriptor through which the folder was read.
            continue
    return descriptors

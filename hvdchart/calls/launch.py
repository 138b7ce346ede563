"""Calls that share pods until this program ends: `launch`, and `close` to remove the pods."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from hvdchart.calls.caller import Caller
from hvdchart.calls.settings import FieldsAsArguments, LaunchArguments, Settings, check_kinds
from hvdchart.calls.traceback_filter import callers_lines
from hvdchart.errors import HvdchartError
from hvdchart.script.options import DEFAULT_WORKERS


@dataclass
class _Pooled:
    """A `Caller` made by `launch`, and the number of calls that use it now."""

    caller: Caller
    calls: int = 0


# The callers made by `launch`, by their settings.
_pool: dict[str, _Pooled] = {}
# What None stands for.
_DEFAULTS = {"workers": DEFAULT_WORKERS, "gpus": 0}
# Callers are created one at a time, one for each key. CPython up to 3.11 also fails when two
# threads parse programs at once, as planning does (python/cpython#106905).
_making = threading.Lock()


def _forget_lock() -> None:
    """Create a new lock in a fork: a thread that the fork lacks may hold the old one."""
    global _making  # noqa: PLW0603
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


@FieldsAsArguments(LaunchArguments)
def launch(arguments: LaunchArguments) -> list[Any]:
    """Call a function on each rank of a few pods; what it returns, by rank.

    The first call installs a release. The next call with the same settings uses the same pods,
    which are removed at the end of this program, or by the first call with other settings while
    they are idle: a Caller keeps pods beside those of others. `hvdchart.close()` removes them at
    once.

    Raises CallError for what cannot travel, SpecError for wrong settings, the exception of the
    first rank that fails, RunFailedError for lost ranks, TimeLimitError after `timeout`, and
    ClusterError and HelmError where the pods cannot be had.

    function: it travels with what it refers to; modules of your own are in `code`.
    args: its arguments.
    kwargs: its arguments with names.
    workers: number of workers; 2 by default.
    gpus: GPUs of each worker, with a rank on each; none by default.
    cpu: CPUs of each worker, such as 4; by default 250m.
    memory: memory of each worker, such as "8Gi"; by default 3Gi.
    image: image of the pods; by default a public one of the framework that the function imports,
        or else this program.
    env: variables of the ranks.
    secrets: Secrets, as "NAME" for variables or "NAME:/PATH" for files.
    volumes: volumes by name, such as {"data": "pvc:CLAIM:/data:ro"}.
    settings: keys of a spec, such as ["image.pullSecrets=[mine]"], as with `hvdchart run --set`.
    spec: a path or a Spec in the place of workers to settings above; its command is not used.
    code: folder of modules for the function, with their requirements.txt.
    name: name of the release; by default `launch-` and six characters, or that of the spec.
    namespace: namespace of Kubernetes; by default that of the context.
    context: context of the kubeconfig; by default the current one.
    helm: the program Helm, a name on PATH or a path.
    idle: seconds without a call after which the workers end; the next call starts others.
    force: also install what cannot start now: nodes or Secrets will come.
    output: where the ranks' output goes; sys.stdout by default.
    timeout: seconds after which the ranks are ended, from when the workers are ready; None for no
        limit.
    """
    settings = {
        setting.name: getattr(arguments, setting.name) for setting in dataclasses.fields(Settings)
    }
    check_kinds({**settings, "timeout": arguments.timeout})
    with _borrow(settings) as caller:
        return caller(
            arguments.function, arguments.args, arguments.kwargs, timeout=arguments.timeout
        )


def close() -> None:
    """Remove the pods of `launch`, whose next call installs others; ends calls that are being made.

    Raises HelmError and ClusterError: then the end of this program removes them.
    """
    with _making:
        ended = [pooled.caller for pooled in _pool.values()]
        _pool.clear()
    with callers_lines, ExitStack() as stack:
        for caller in ended:
            stack.callback(caller.close)


@contextmanager
def _borrow(arguments: Mapping[str, Any]) -> Iterator[Caller]:
    """Return the caller of these settings for one call; it replaces idle callers of others."""
    key = _key(arguments)
    with _making:
        pooled = _pool.get(key)
        idle = {}
        if pooled is None:
            pooled = _Pooled(Caller(**arguments))
            idle = {
                idle_key: pooled_caller
                for idle_key, pooled_caller in _pool.items()
                if not pooled_caller.calls
            }
            for idle_key in idle:
                del _pool[idle_key]
            _pool[key] = pooled
        pooled.caller.output = arguments["output"]
        pooled.calls += 1
    try:
        for pooled_caller in idle.values():
            pooled_caller.caller.output = arguments["output"]
            # If the removal fails now, the end of this program repeats it.
            with suppress(HvdchartError):
                pooled_caller.caller.close("this call has other settings")
        yield pooled.caller
    finally:
        with _making:
            pooled.calls -= 1


def _key(arguments: Mapping[str, Any]) -> str:
    """Return the settings as one text; equal settings give the same text."""
    same = {}
    for name, value in arguments.items():
        if name == "output":
            # The output is chosen for each call: the file of an earlier call may be closed.
            continue
        setting = _DEFAULTS.get(name) if value is None else value
        if isinstance(setting, Mapping):
            setting = sorted(setting.items())
        elif name in ("code", "spec") and isinstance(setting, str | Path):
            setting = str(Path(setting).absolute())
        elif name == "idle" and isinstance(setting, Real):
            setting = float(setting)
        # No CPU at all is refused, and so is not the default.
        same[name] = setting if isinstance(setting, Real) else setting or None
    return repr(same)

"""Run functions of Python on the ranks of a release, which stays for the next call."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from secrets import token_hex
from typing import Any, NoReturn, Self

from hvd_pods.shared.pip_output import REQUIREMENTS
from hvd_pods.shared.untrusted import printable
from hvdchart.calls.call_image import OwnRun, users_modules
from hvdchart.calls.call_release import CallRelease
from hvdchart.calls.connection import Connection, ConnectionLostError, Packed, RanksError, pack_call
from hvdchart.calls.own_spec import plan_calls, read_with_programs
from hvdchart.calls.settings import FieldsAsArguments, Settings, check_kinds
from hvdchart.calls.traceback_filter import callers_lines
from hvdchart.doctor.examine import check_before_install
from hvdchart.errors import ClusterError, HelmError, HvdchartError, RunFailedError
from hvdchart.interrupts import exit_on_signals
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.state.status_text import status_report
from hvdchart.run.state.view import RunView
from hvdchart.script.beside_script import drop_own_modules, read_text
from hvdchart.script.default_images import warn_of_misspelt
from hvdchart.script.script_plan import warn_of_small_worker
from hvdchart.script.wording import name_arguments, name_options
from hvdchart.spec.model import Spec
from hvdchart.values.check_values import checked_values
from hvdchart.watch.notebook import beside_call

_CLOSED = "the caller was closed"


class Caller:
    """Calls functions on the ranks of a run of its own: `caller(function, args, kwargs)`.

    The settings are those of `launch`, which `help(hvdchart.launch)` lists. The first call installs
    the release. Later calls use the same pods, with the current spec and code. `close`, the end of
    a `with` block, or the end of this program removes the pods. If this program is killed, the
    cluster ends the run. A fork of this process cannot use its callers.
    """

    @FieldsAsArguments(Settings)
    def __init__(self, settings: Settings) -> None:
        settings.check()
        self._source: str | Path | Spec | OwnRun
        name = settings.name
        if settings.spec is None:
            name = name or f"launch-{token_hex(3)}"
            self._source = OwnRun(settings.script_run(name), tuple(sys.modules))
        else:
            self._source = settings.spec
        # The stream for the output; the next call may use another one.
        self.output = settings.output
        # The user has no command line and, without a spec, does not know its keys.
        self._word = _name_own_arguments if settings.spec is None else name_arguments
        # Each line is reported once.
        self._report_once = cache(self._report)
        # The program may change its working directory.
        self._code = None if settings.code is None else Path(settings.code).absolute()
        self._read = partial(read_with_programs, self._source, name, self._code, self._report_once)
        self._idle = float(settings.idle)
        self._plan = plan_calls(self._read(), self._idle)
        self._namespace = settings.namespace
        self._helm = Helm(settings.helm, settings.context, rephrase=self._word)
        self._force = settings.force
        self._release: CallRelease | None = None
        # A fork also has this object, and must not remove the release of the parent process.
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._is_closed = False

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<Caller {self._plan.spec.name}: {self._plan.ranks} ranks{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> list[Any]:
        """Call the function on each rank, and return its results by rank.

        Raises CallError for what cannot be pickled, before anything else is done; the exception of
        the first rank that fails, with the rank's traceback as its cause; RunFailedError when ranks
        are lost, the caller is closed, or this is a fork of its process; TimeLimitError after
        `timeout` seconds, counted from when the workers are ready; and the errors of Helm and the
        cluster. Whatever it raises, the ranks have been ended.
        """
        with callers_lines:
            check_kinds({"timeout": timeout})
            limit = None if timeout is None else float(timeout)
            return self._call(pack_call(function, args, kwargs or {}), limit)

    def _call(self, call: Packed, timeout: float | None) -> list[Any]:
        # Check this before taking the lock: another thread may have held the lock during the fork.
        if os.getpid() != self._process:
            raise RunFailedError(
                f"this process is a fork of the one whose run {self._plan.spec.name} is: call the "
                "function there, or make a Caller of another name here; processes that "
                'multiprocessing.get_context("spawn") starts have callers of their own'
            )
        with self._lock:
            self._prepare(call)
            release, connection = self._connect()
            name = self._plan.spec.name
            is_shown = self.output is None
            try:
                self._check_open()
                # A notebook displays the run during the call.
                with beside_call(
                    release.cluster, name, release.kubectl, self._write, is_shown
                ) as write:
                    return connection.call(call.content, self._plan.ranks, timeout, write)
            except (ConnectionLostError, RanksError) as error:
                reason = release.explain(error, connection)
                if not reason:
                    raise
                raise RunFailedError(
                    f"the call has ended: {reason}; it is not repeated, because the function may "
                    "have done a part of its work, and the next call waits for the workers"
                ) from error
            finally:
                if not connection.is_reusable:
                    # Also after Ctrl-C: when the caller disconnects, the server ends the ranks.
                    release.disconnect()

    def _prepare(self, call: Packed) -> None:
        """Choose the image for the modules of a call, and report modules that the ranks will lack.

        Raises CallError for an image whose Python cannot run the call.
        """
        modules = users_modules(call.modules) if self._code is None else {}
        if modules:
            folders = " or ".join(sorted({f"code={str(folder)!r}" for folder in modules.values()}))
            self._report_once(
                f"warning: the call uses {' and '.join(modules)} of this machine, which the ranks "
                f"lack unless the image has it: {folders}"
            )
        if not isinstance(self._source, OwnRun):
            return
        self._source.use(call.modules)
        for remark in warn_of_misspelt(call.modules, "the call"):
            self._report_once(f"warning: {remark}")
        for remark in warn_of_small_worker(self._plan, "cpu="):
            self._report_once(remark)
        image = self._source.image
        if image is None:
            return
        self._report_once(f"image {image.reference}, because {image.reason}; image= names another")
        folder = self._code
        text = read_text(folder / REQUIREMENTS) if folder else ""
        lacks = image.lacking(drop_own_modules(call.modules, [folder] if folder else []), text)
        if lacks:
            add = " and ".join(lacks)
            place = f"in {folder}" if folder else "in a folder, and code= of that folder"
            self._report_once(
                f"warning: the image lacks what the call uses: add {add} to {REQUIREMENTS} {place}"
            )

    def close(self, reason: str = "") -> None:
        """End a call, also in another thread, the run and its workers, and remove the release.

        If `reason` is given, the output gives this reason. Raises HelmError and ClusterError: then
        call it again, or the end of this program will. In a fork, it does nothing.
        """
        if os.getpid() != self._process:
            return
        self._is_closed = True
        release = self._release
        if reason and release:
            self._report(f"removing release {self._plan.spec.name}: {reason}")
        if release and release.connection:
            release.connection.end(RunFailedError(_CLOSED))
        with self._lock:
            self._remove()

    def _check_open(self) -> None:
        """Raise RunFailedError when the caller was closed."""
        if self._is_closed:
            raise RunFailedError(_CLOSED)

    def _remove(self) -> None:
        """Remove the release, if there is one; the next call installs it again."""
        if self._release:
            self._release.remove()
        atexit.unregister(self.close)
        self._release = None

    def _connect(self) -> tuple[CallRelease, Connection]:
        """Return the last call's connection, or a new one; install a missing or changed release.

        A run that ended between calls is started again. Raises RunFailedError when the run has
        failed, which is then removed, or when the caller is closed.
        """
        while True:
            self._check_open()
            spec = self._read()
            release = self._release
            is_new = release is None or spec != release.spec
            if release and not is_new and release.connection and release.connection.is_open:
                return release, release.connection
            if release:
                release.disconnect()
            if is_new or release is None:
                release = self._install(spec)
            answer = release.connect(self._check_open)
            if isinstance(answer, Connection):
                return release, answer
            reason = release.why_again(answer, is_new=is_new, idle=self._idle)
            if not reason:
                self._give_up(answer, release.cluster.namespace)
            self._report(reason)
            self._remove()

    def _give_up(self, run: RunView, namespace: str) -> NoReturn:
        """Remove a failed run, and raise RunFailedError."""
        status = dataclasses.replace(
            run.status, reason=self._word(run.status.reason), remedy=self._word(run.status.remedy)
        )
        lines = "\n".join(status_report(status, namespace))
        # The next call installs a release again. If the removal fails now, it is repeated then.
        with suppress(HvdchartError):
            self._remove()
        state = "cannot start" if status.is_stuck else "has ended"
        raise RunFailedError(f"the run {state}, and the next call starts another:\n{lines}")

    def _install(self, spec: Spec) -> CallRelease:
        """Install the release, or upgrade it. After a failure, the next call installs it again."""
        plan = plan_calls(spec, self._idle)
        release = self._release
        if release and (spec.name != self._plan.spec.name or release.spec is None):
            # Retry a removal that failed before.
            self._remove()
            release = None
        self._plan = plan
        values = checked_values(plan)
        if release:
            cluster = release.cluster
            release.invalidate()
        else:
            cluster = Cluster.connect(self._helm.context, self._namespace)
        if not self._force:
            check_before_install(cluster, values, self._word)
        if release:
            self._report("the code or the spec has changed: starting the run again with it")
        else:
            release = CallRelease(cluster, spec.name, self._helm, self._word, self._report)
            self._report(f"installing release {spec.name} in namespace {cluster.namespace}")
            # From here on, the release is removed however this program ends.
            self._release = release
            atexit.register(self.close)
            exit_on_signals()
        try:
            release.install(spec, values)
        except (HelmError, ClusterError):
            # Report the first error.
            with suppress(HelmError, ClusterError):
                self._remove()
            raise
        except BaseException:
            self._remove()
            raise
        return release

    def _write(self, text: str) -> None:
        """Write the ranks' output unchanged."""
        output = self.output or sys.stdout
        output.write(text)
        output.flush()

    def _report(self, text: str) -> None:
        """Write a remark of the caller between the ranks' output."""
        self._write(f"hvdchart: {printable(text)}\n")


def _name_own_arguments(text: str) -> str:
    """Replace marked values, keys of a spec and options in a text by arguments of `launch`."""
    return name_arguments(name_options(text))

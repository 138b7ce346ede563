"""Functions of Python that run on the ranks of a release, which stays for the next call."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    suppress,
)
from functools import cache, partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

from hvd_pods.common.hostile import one_line, printable
from hvd_pods.common.pip_output import REQUIREMENTS
from hvd_pods.common.record import RecordKey
from hvdchart.calls.call_image import OwnRun, users_modules
from hvdchart.calls.connection import (
    Connection,
    LostError,
    Packed,
    RanksError,
    pack,
)
from hvdchart.calls.own_spec import PROGRAMS, plan_calls, read_with_programs
from hvdchart.calls.settings import Settings, Takes, check_kinds
from hvdchart.calls.traceback_filter import callers_lines
from hvdchart.doctor.examine import check_before_install
from hvdchart.doctor.rights import Right
from hvdchart.errors import (
    ClusterError,
    HelmError,
    HvdchartError,
    RunFailedError,
    SpecError,
)
from hvdchart.interrupts import exit_on_signals
from hvdchart.project.default_images import misspelt
from hvdchart.project.script import read_text, small_worker, without_own
from hvdchart.run.change.session import Session, lease_end
from hvdchart.run.follow.changes import watch_run
from hvdchart.run.helm import Helm
from hvdchart.run.kube.api import unless_refused
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.kubectl import IN_CODE, Kubectl
from hvdchart.run.state.output import running_pod
from hvdchart.run.state.phases import TRAINING
from hvdchart.run.state.pod_problems import why_ended
from hvdchart.run.state.release import component_of
from hvdchart.run.state.status_text import status_report
from hvdchart.run.state.view import RunView
from hvdchart.spec.model import Spec
from hvdchart.spec.run_options import in_arguments, in_options
from hvdchart.text import join_names
from hvdchart.values.check_values import checked_values
from hvdchart.watch.notebook import beside_call

# Seconds until the cluster shows that a worker is gone, and until the master says what it has lost.
_MISS_WITHIN = 2.0
_RECORD_WITHIN = 30.0
# Seconds for which a server that should be there may not answer: the next attempt may be about to
# begin.
ANSWER_WITHIN = 60.0
# What a call does in the namespace, beside what installs and follows a run.
_ENTER = Right("", "pods/exec", "create")
# Limits of `idle` in seconds: a caller needs time to find the server, and timers overflow.
_LEAST_IDLE = 10.0
_MOST_IDLE = 1e6
_CLOSED = "the caller was closed"
_AFTER_END = "the next call starts it again"


@dataclasses.dataclass
class _Deployed:
    """A release that is installed, and what the calls know of its run."""

    cluster: Cluster
    kubectl: Kubectl
    session: Session
    # As it was installed last; None where that has failed, or its removal.
    spec: Spec | None = None
    connection: Connection | None = None
    # A call has found that the run has ended.
    has_ended: bool = False
    # The record's last change, and the workers, at the time of the connection.
    changed: tuple[str, str] = ("", "")
    workers: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)

    def disconnect(self) -> None:
        """End the connection, if there is one; the run goes on."""
        if self.connection:
            self.connection.close()
        self.connection = None


class Caller:
    """Calls functions on the ranks of a run of its own: `caller(function, args, kwargs)`.

    The settings are those of `launch`, which `help(hvdchart.launch)` lists. The first call installs
    the release. Later calls use the same pods, with the spec and the code as they then are. The
    pods are removed by `close`, at the end of a `with` block, or of this program. The cluster ends
    what a program leaves that was killed. A fork of this process cannot use its callers.
    """

    @Takes(Settings)
    def __init__(self, given: Settings) -> None:
        given.check()
        if not _LEAST_IDLE <= given.idle <= _MOST_IDLE:
            expected = f"{_LEAST_IDLE:.0f} to {_MOST_IDLE:.0f} seconds"
            raise SpecError("the settings", "idle", f"{given.idle:g} s", expected)
        self._given: str | Path | Spec | OwnRun
        name = given.name
        if given.spec is None:
            name = name or f"launch-{token_hex(3)}"
            self._given = OwnRun(given.script_run(name), tuple(sys.modules))
        else:
            self._given = given.spec
        # Where the output goes; it may be another one for the next call.
        self.output = given.output
        # Nobody here has a command line, and who gives no spec knows no keys of it.
        self._word = _in_own_words if given.spec is None else in_arguments
        # A line is reported once.
        self._report_once = cache(self._report)
        # The program may go to another folder.
        self._code = None if given.code is None else Path(given.code).absolute()
        self._read = partial(read_with_programs, self._given, name, self._code, self._report_once)
        self._plan = plan_calls(self._read(), given.idle)
        self._namespace = given.namespace
        self._helm = Helm(given.helm, given.context, rephrase=self._word)
        self._force = given.force
        self._idle = given.idle
        self._deployed: _Deployed | None = None
        # A fork has this object, too, and must leave the release to the process that made it.
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
        """What the function returns on each rank, by rank.

        Raises CallError for what cannot be pickled, before anything else is done; the exception of
        the first rank that fails, with the rank's traceback as its cause; RunFailedError when ranks
        are lost, the caller is closed, or this is a fork of its process; TimeLimitError after
        `timeout` seconds, counted from when the workers are ready; and the errors of Helm and the
        cluster. Whatever it raises, the ranks have been ended.
        """
        with callers_lines:
            check_kinds({"timeout": timeout})
            if timeout is not None and not timeout >= 0:
                raise SpecError("the settings", "timeout", f"got {timeout:g}", "0 or more seconds")
            return self._call(pack(function, args, kwargs or {}), timeout)

    def _call(self, call: Packed, timeout: float | None) -> list[Any]:
        # Before the lock, which a thread may have held when this process was forked.
        if os.getpid() != self._process:
            raise RunFailedError(
                f"this process is a fork of the one whose run {self._plan.spec.name} is: call the "
                "function there, or make a Caller of another name here; processes that "
                'multiprocessing.get_context("spawn") starts have callers of their own'
            )
        with self._lock:
            self._prepare(call)
            connection = self._connect()
            try:
                self._check_open()
                with self._shown() as write:
                    return connection.call(call.content, self._plan.ranks, timeout, write)
            except (LostError, RanksError) as error:
                reason = self._explain(error, connection)
                if not reason:
                    raise
                raise RunFailedError(
                    f"the call has ended: {reason}; it is not repeated, because the function may "
                    "have done a part of its work, and the next call waits for the workers"
                ) from error
            finally:
                if not connection.is_reusable and self._deployed:
                    # Also after Ctrl-C: the server ends the ranks of a caller that goes.
                    self._deployed.disconnect()

    def _prepare(self, call: Packed) -> None:
        """Choose the image for what a call uses, and report what the ranks will lack.

        Raises CallError for an image whose Python cannot take the call.
        """
        own = users_modules(call.modules) if self._code is None else {}
        if own:
            folders = " or ".join(sorted({f"code={str(folder)!r}" for folder in own.values()}))
            self._report_once(
                f"warning: the call uses {' and '.join(own)} of this machine, which the ranks lack "
                f"unless the image has it: {folders}"
            )
        if not isinstance(self._given, OwnRun):
            return
        self._given.use(call.modules)
        for remark in misspelt(call.modules, "the call"):
            self._report_once(f"warning: {remark}")
        for remark in small_worker(self._plan, "cpu="):
            self._report_once(remark)
        image = self._given.image
        if image is None:
            return
        self._report_once(f"image {image.reference}, because {image.why}; image= names another")
        folder = self._code
        text = read_text(folder / REQUIREMENTS) if folder else ""
        lacks = image.lacking(without_own(call.modules, [folder] if folder else []), text)
        if lacks:
            add = " and ".join(lacks)
            where = f"in {folder}" if folder else "in a folder, and code= of that folder"
            self._report_once(
                f"warning: the image lacks what the call uses: add {add} to {REQUIREMENTS} {where}"
            )

    def close(self, why: str = "") -> None:
        """End a call, also in another thread, the run and its workers, and remove the release.

        The output says why, if `why` does.
        Raises HelmError and ClusterError: then call it again, or the end of this program will.
        In a fork, nothing happens.
        """
        if os.getpid() != self._process:
            return
        self._is_closed = True
        deployed = self._deployed
        if why and deployed:
            self._report(f"removing release {self._plan.spec.name}: {why}")
        if deployed and deployed.connection:
            deployed.connection.end(RunFailedError(_CLOSED))
        with self._lock:
            self._remove()

    def _check_open(self) -> None:
        """Raise RunFailedError when the caller was closed."""
        if self._is_closed:
            raise RunFailedError(_CLOSED)

    @property
    def _release(self) -> _Deployed:
        """The release of a call that is being made."""
        assert self._deployed  # noqa: S101 - a call installs it first
        return self._deployed

    def _remove(self) -> None:
        """Remove the release, if there is one; the next call installs another one."""
        if self._deployed:
            self._deployed.disconnect()
            self._deployed.spec = None
            self._deployed.session.remove()
        atexit.unregister(self.close)
        self._deployed = None

    def _connect(self) -> Connection:
        """The connection of the last call, or another one; deploys what is not there or differs.

        A run that has ended while there was no call is started again. Raises RunFailedError when
        the run has failed, which is removed, or the caller is closed.
        """
        while True:
            self._check_open()
            spec = self._read()
            deployed = self._deployed
            is_new = deployed is None or spec != deployed.spec
            if deployed and not is_new and deployed.connection and deployed.connection.is_open:
                return deployed.connection
            if deployed:
                deployed.disconnect()
            if is_new:
                self._deploy(spec)
            connection = self._wait_for_ranks(is_new=is_new)
            if connection:
                return connection

    def _wait_for_ranks(self, *, is_new: bool) -> Connection | None:
        """A connection to the run when it takes calls; None when it has ended and was removed.

        is_new: whether it was just installed or changed. Raises RunFailedError for a run that has
        failed, and ClusterError when a server that should be there does not answer.
        """
        deployed = self._release
        began = time.monotonic()
        last = ""
        problem = ""
        silent_since: float | None = None
        for run in watch_run(deployed.cluster, self._plan.spec.name):
            self._check_open()
            if run.status.over or run.status.is_stuck or run.status.state == "not found":
                self._end_run(run, is_new=is_new)
                return None
            if run.phase.name == TRAINING:
                try:
                    pod = running_pod(run, "master")["metadata"]["name"]
                    deployed.connection = Connection(self._command(pod))
                except ClusterError as error:
                    # The next attempt may be about to begin.
                    silent_since = silent_since or time.monotonic()
                    if time.monotonic() - silent_since > ANSWER_WITHIN:
                        raise
                    problem = f"; {error}"
                else:
                    now = deployed.cluster.newest_run(self._plan.spec.name)
                    deployed.changed = _last_change(now)
                    deployed.workers = _workers(now)
                    return deployed.connection
            shown = self._word(f"{run.phase}{problem}")
            if shown != last:
                self._report(f"{time.monotonic() - began:5.1f} s  {shown}")
            last = shown
        return None

    def _end_run(self, run: RunView, *, is_new: bool) -> None:
        """Remove a run that has ended, so that another one can be installed; say why it is gone.

        Raises RunFailedError for one that has failed, or is gone although it `is_new`.
        """
        status = run.status
        if status.state == "finished":
            self._report(f"the workers have ended after {self._idle:g} s without a call")
        elif status.state == "not found" and not is_new:
            self._report(f"release {status.name} was removed by somebody else: installing it again")
        elif self._release.has_ended or lease_end(run.release):
            self._report(f"the run has ended: {one_line(status.reason)}; starting it again")
        else:
            status = dataclasses.replace(
                status, reason=self._word(status.reason), remedy=self._word(status.remedy)
            )
            lines = "\n".join(status_report(status, self._release.cluster.namespace))
            # The next call installs another one; a removal that fails now is repeated then.
            with suppress(HvdchartError):
                self._remove()
            what = "cannot start" if status.is_stuck else "has ended"
            raise RunFailedError(f"the run {what}, and the next call starts another:\n{lines}")
        self._remove()

    def _deploy(self, spec: Spec) -> None:
        """Install the release, or change it. What fails leaves none, and the next call installs."""
        plan = plan_calls(spec, self._idle)
        deployed = self._deployed
        if deployed and (spec.name != self._plan.spec.name or deployed.spec is None):
            # What could not be removed before.
            self._remove()
            deployed = None
        self._plan = plan
        values = checked_values(plan)
        cluster = (
            deployed.cluster if deployed else Cluster.connect(self._helm.context, self._namespace)
        )
        if deployed:
            # Whatever fails from here on, the next call installs.
            deployed.spec = None
            deployed.has_ended = False
        if not self._force:
            check_before_install(cluster, values, self._word)
        if deployed:
            self._report("the code or the spec has changed: starting the run again with it")
        else:
            deployed = self._begin(cluster, spec.name)
        try:
            deployed.session.upgrade(values)
        except (HelmError, ClusterError):
            # That is the error to report.
            with suppress(HelmError, ClusterError):
                self._remove()
            raise
        except BaseException:
            self._remove()
            raise
        deployed.spec = spec

    def _begin(self, cluster: Cluster, name: str) -> _Deployed:
        """A session for a release that is not there yet, removed however this program ends.

        Raises ClusterError without kubectl, without the right to enter pods, and for a name that is
        taken: a call would wait for pods that it cannot reach.
        """
        kubectl = Kubectl(cluster.namespace, self._helm.context)
        kubectl.command()
        # Who may not ask learns it from the call.
        if not unless_refused(partial(cluster.is_allowed, *_ENTER), True):
            raise ClusterError(
                f"calls need the right to create pods/exec in namespace {cluster.namespace}, "
                "which you do not have: `hvdchart doctor` lists all rights that are missing"
            )
        session = Session(cluster, name, self._helm, self._report, _AFTER_END)
        self._report(f"installing release {name} in namespace {cluster.namespace}")
        self._deployed = _Deployed(cluster, kubectl, session)
        atexit.register(self.close)
        exit_on_signals()
        return self._deployed

    def _command(self, pod: str) -> list[str]:
        """The command line that joins its standard streams with the server in the master's pod."""
        program = ("python3", f"{PROGRAMS}/server.py", "connect")
        return self._release.kubectl.command(
            "exec", "-i", pod, "-c", "master", "--", *IN_CODE, *program
        )

    def _shown(self) -> AbstractContextManager[Callable[[str], object]]:
        """Show the run in a notebook during a call; gives what writes the ranks' output."""
        at = self._release
        name = self._plan.spec.name
        return beside_call(at.cluster, name, at.kubectl, self._write, self.output is None)

    def _explain(self, error: LostError | RanksError, connection: Connection) -> str:
        """Which worker was lost, or why the master ended the server; empty for ranks' own end."""
        deployed = self._release
        is_lost = isinstance(error, LostError)
        within = _RECORD_WITHIN if is_lost else _MISS_WITHIN
        for run in watch_run(deployed.cluster, self._plan.spec.name, within):
            status = run.status
            workers = _workers(run)
            deployed.has_ended = deployed.has_ended or status.over
            if status.state == "not found":
                return f"release {status.name} was removed"
            if status.over or _last_change(run) != deployed.changed:
                reason = run.release.record.get(RecordKey.REASON) or status.reason
                return one_line(self._word(reason) or str(error))
            gone = [name for name, each in deployed.workers.items() if workers.get(name) != each]
            if gone and not is_lost:
                # The caller sees the loss before the master, which may wait for the host's answer.
                connection.end_server()
                lost = [pod for pod in run.pods if pod["metadata"]["name"] in gone]
                problem = next(filter(None, map(why_ended, lost)), None)
                why = "its pod has ended, or was replaced"
                if problem:
                    why = self._word(f"{problem.reason}; {problem.remedy}".rstrip("; "))
                return f"lost {join_names(gone)}: {why}"
        return str(error) if is_lost else ""

    def _write(self, text: str) -> None:
        """Write the ranks' output as it is."""
        output = self.output or sys.stdout
        output.write(text)
        output.flush()

    def _report(self, text: str) -> None:
        """Write a remark of the caller itself, between the ranks' output."""
        self._write(f"hvdchart: {printable(text)}\n")


def _in_own_words(text: str) -> str:
    """A text with arguments of `launch` where it marks values, keys of a spec or options."""
    return in_arguments(in_options(text))


def _last_change(run: RunView) -> tuple[str, str]:
    """Which attempt the record speaks of, and since when."""
    record = run.release.record
    return record.get(RecordKey.ATTEMPTS, ""), record.get(RecordKey.TIME, "")


def _workers(run: RunView) -> dict[str, tuple[str, int]]:
    """The running workers by name: the pod's UID, and how often it was started again."""
    restarts = {pod.name: pod.restarts for pod in run.status.pods}
    workers = {}
    for pod in run.pods:
        if component_of(pod) == "worker" and pod["status"].get("phase") == "Running":
            name = pod["metadata"]["name"]
            workers[name] = (pod["metadata"]["uid"], restarts[name])
    return workers

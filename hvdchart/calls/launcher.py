"""Functions of Python that run on the ranks of a release, which stays for the next call."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ContextDecorator,
    ExitStack,
    contextmanager,
    suppress,
)
from functools import cache, partial
from numbers import Real
from pathlib import Path
from secrets import token_hex
from typing import Any, Self, TextIO

import cloudpickle

from hvd_pods.common.hostile import one_line, printable
from hvd_pods.common.launcher_options import LAUNCH
from hvd_pods.common.pip_output import REQUIREMENTS
from hvd_pods.common.record import Key
from hvdchart.calls.connection import (
    Connection,
    LostError,
    Packed,
    RanksError,
    RemoteTraceback,
    pack,
)
from hvdchart.calls.own_run import OwnRun, check_kinds, own_script_run, users_modules
from hvdchart.code.archive import list_files, pack_files
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
from hvdchart.plan.measuring import command_plan
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.project.default_images import misspelt
from hvdchart.project.script import ScriptRun, read_text, small_worker, without_own
from hvdchart.run.change.session import Session, lease_end
from hvdchart.run.follow.watch import watch_run
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
from hvdchart.spec.load import load_spec
from hvdchart.spec.model import Spec
from hvdchart.spec.run_options import in_arguments, in_options
from hvdchart.text import join_names
from hvdchart.values.check_values import checked_values
from hvdchart.watch.notebook import beside_call

# Where the programs are in the code of the pods, and the package that they are in.
_FOLDER = ".hvdchart"
_IN_POD = Path(__file__).parent / "in_pod"
_PROGRAMS = f"{_FOLDER}/hvdchart/calls/in_pod"
# How often workers may be lost.
_RETRIES = 1000
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
_CLOSED = "the launcher was closed"
_AFTER_END = "the next call starts it again"


class _CallersLines(ContextDecorator, AbstractContextManager[None]):
    """Takes hvdchart's own lines from the traceback of what a call raises.

    That is an error for the user, or an exception of the function, whose own lines are in its
    cause. A defect keeps all of its lines.
    """

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_of_function = error is not None and isinstance(error.__cause__, RemoteTraceback)
        if not (is_of_function or isinstance(error, HvdchartError)):
            return
        if error is not None and not is_of_function:
            # Its text names the cause, whose own lines are those of libraries.
            error.__cause__ = None
            error.__suppress_context__ = True
        while error is not None:
            # From Python 3.11 on, no line of the function with this block is added again.
            error.__traceback__ = None
            error = error.__context__ if error.__cause__ is None else error.__cause__


_callers_lines = _CallersLines()


class Launcher:
    """Calls functions on the ranks of a run of its own: `launcher(function, args, kwargs)`.

    The settings are those of `launch`. The first call installs the release. Later calls use the
    same pods, with the spec and the code as they then are. The pods are removed by `close`, at the
    end of a `with` block, or of this program. The cluster ends what a program leaves that was
    killed. A fork of this process cannot use its launchers.
    """

    @_callers_lines
    def __init__(
        self,
        *,
        workers: int | None = None,
        gpus: int | None = None,
        cpu: float | str | None = None,
        memory: str = "",
        image: str = "",
        env: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        volumes: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        spec: str | Path | Spec | None = None,
        code: str | Path | None = None,
        name: str = "",
        namespace: str | None = None,
        context: str | None = None,
        helm: str = "helm",
        idle: float = 600.0,
        force: bool = False,
        output: TextIO | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "workers": workers,
            "gpus": gpus,
            "cpu": cpu,
            "memory": memory,
            "image": image,
            "env": env,
            "secrets": secrets,
            "volumes": volumes,
            "settings": settings,
        }
        own = {key: value for key, value in given.items() if value not in (None, "", (), [], {})}
        if spec is not None and own:
            where = "keys of the spec, or no spec="
            raise SpecError("the settings", join_names(own), "given beside spec=", where)
        others = {"idle": idle, "force": force, "output": output, "helm": helm}
        check_kinds({**others, "namespace": namespace})
        if not _LEAST_IDLE <= idle <= _MOST_IDLE:
            expected = f"{_LEAST_IDLE:.0f} to {_MOST_IDLE:.0f} seconds"
            raise SpecError("the settings", "idle", f"{idle:g} s", expected)
        self._given: str | Path | Spec | OwnRun
        if spec is None:
            name = name or f"launch-{token_hex(3)}"
            self._given = OwnRun(own_script_run(name, own), tuple(sys.modules))
        else:
            self._given = spec
        self._output = output
        # Who gives no spec knows no keys of it.
        self._word: Callable[[str], str] = str if spec is not None else _in_arguments
        # A line is reported once.
        self._report_once = cache(self._report)
        # The program may go to another folder.
        self._code = None if code is None else Path(code).absolute()
        self._read = partial(_read, self._given, name, self._code, self._report_once)
        self._plan = _plan(self._read(), idle)
        # As it was installed last.
        self._spec: Spec | None = None
        self._namespace = namespace
        self._helm = Helm(helm, context, rephrase=in_arguments)
        self._force = force
        self._idle = idle
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        # A fork has this object, too, and must leave the release to the process that made it.
        self._process = os.getpid()
        self._connection: Connection | None = None
        # A call has found that the run has ended.
        self._has_ended = False
        # The record's last change, and the workers, at the time of the connection.
        self._changed: tuple[str, str] = ("", "")
        self._workers: dict[str, tuple[str, int]] = {}
        self._lock = threading.RLock()
        self._is_closed = False

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<Launcher {self._plan.spec.name}: {self._plan.ranks} ranks{state}>"

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
        are lost, the launcher is closed, or this is a fork of its process; TimeLimitError after
        `timeout` seconds, counted from when the workers are ready; and the errors of Helm and the
        cluster. Whatever it raises, the ranks have been ended.
        """
        with _callers_lines:
            check_kinds({"timeout": timeout})
            if timeout is not None and not timeout >= 0:
                raise SpecError("the settings", "timeout", f"got {timeout:g}", "0 or more seconds")
            return self._call(pack(function, args, kwargs or {}), timeout)

    def _call(self, call: Packed, timeout: float | None) -> list[Any]:
        # Before the lock, which a thread may have held when this process was forked.
        if os.getpid() != self._process:
            raise RunFailedError(
                f"this process is a fork of the one whose run {self._plan.spec.name} is: call the "
                "function there, or make a Launcher of another name here; processes that "
                'multiprocessing.get_context("spawn") starts have launchers of their own'
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
                if not connection.is_reusable:
                    # Also after Ctrl-C: the server ends the ranks of a caller that goes.
                    self._disconnect()

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
        if why and self._session:
            self._report(f"removing release {self._plan.spec.name}: {why}")
        connection = self._connection
        if connection:
            connection.end(RunFailedError(_CLOSED))
        with self._lock:
            self._remove()

    def _check_open(self) -> None:
        """Raise RunFailedError when the launcher was closed."""
        if self._is_closed:
            raise RunFailedError(_CLOSED)

    def _remove(self) -> None:
        """Remove the release, if there is one; the next call installs another one."""
        self._disconnect()
        self._spec = None
        if self._session:
            self._session.remove()
        atexit.unregister(self.close)
        self._session = None
        self._cluster = None

    def _disconnect(self) -> None:
        """End the connection, if there is one; the run goes on."""
        if self._connection:
            self._connection.close()
        self._connection = None

    def _connect(self) -> Connection:
        """The connection of the last call, or another one; deploys what is not there or differs.

        A run that has ended while there was no call is started again. Raises RunFailedError when
        the run has failed, which is removed, or the launcher is closed.
        """
        self._check_open()
        spec = self._read()
        if spec == self._spec and self._connection and self._connection.is_open:
            return self._connection
        self._disconnect()
        is_new = spec != self._spec
        if is_new:
            self._deploy(spec)
        assert self._cluster  # noqa: S101
        began = time.monotonic()
        last = ""
        problem = ""
        silent_since: float | None = None
        for run in watch_run(self._cluster, self._plan.spec.name):
            self._check_open()
            if run.status.over or run.status.is_stuck or run.status.state == "not found":
                self._end_run(run, is_new=is_new)
                break
            if run.phase.name == TRAINING:
                try:
                    pod = running_pod(run, "master")["metadata"]["name"]
                    self._connection = Connection(self._command(pod))
                except ClusterError as error:
                    # The next attempt may be about to begin.
                    silent_since = silent_since or time.monotonic()
                    if time.monotonic() - silent_since > ANSWER_WITHIN:
                        raise
                    problem = f"; {error}"
                else:
                    now = self._cluster.newest_run(self._plan.spec.name)
                    self._changed = _last_change(now)
                    self._workers = _workers(now)
                    return self._connection
            shown = self._word(f"{run.phase}{problem}")
            if shown != last:
                self._report(f"{time.monotonic() - began:5.1f} s  {shown}")
            last = shown
        return self._connect()

    def _end_run(self, run: RunView, *, is_new: bool) -> None:
        """Remove a run that has ended, so that another one can be installed; say why it is gone.

        Raises RunFailedError for one that has failed, or is gone although it `is_new`.
        """
        status = run.status
        if status.state == "finished":
            self._report(f"the workers have ended after {self._idle:g} s without a call")
        elif status.state == "not found" and not is_new:
            self._report(f"release {status.name} was removed by somebody else: installing it again")
        elif self._has_ended or lease_end(run.release):
            self._report(f"the run has ended: {one_line(status.reason)}; starting it again")
        else:
            assert self._cluster  # noqa: S101
            status = dataclasses.replace(
                status, reason=self._word(status.reason), advice=self._word(status.advice)
            )
            lines = "\n".join(status_report(status, self._cluster.namespace))
            # The next call installs another one; a removal that fails now is repeated then.
            with suppress(HvdchartError):
                self._remove()
            what = "cannot start" if status.is_stuck else "has ended"
            raise RunFailedError(f"the run {what}, and the next call starts another:\n{lines}")
        self._remove()

    def _deploy(self, spec: Spec) -> None:
        """Install the release, or change it. What fails leaves none, and the next call installs."""
        plan = _plan(spec, self._idle)
        if spec.name != self._plan.spec.name or self._spec is None:
            # What could not be removed before.
            self._remove()
        self._plan = plan
        self._spec = None
        self._has_ended = False
        values = checked_values(plan)
        if self._cluster is None:
            self._cluster = Cluster.connect(self._helm.context, self._namespace)
        if not self._force:
            check_before_install(self._cluster, values, in_arguments)
        if self._session is None:
            self._check_reach()
            session = Session(self._cluster, spec.name, self._helm, self._report, _AFTER_END)
            session.require_free()
            self._report(f"installing release {spec.name} in namespace {self._cluster.namespace}")
            self._session = session
            atexit.register(self.close)
            exit_on_signals()
        else:
            self._report("the code or the spec has changed: starting the run again with it")
        try:
            self._session.upgrade(values)
        except (HelmError, ClusterError):
            # That is the error to report.
            with suppress(HelmError, ClusterError):
                self._remove()
            raise
        except BaseException:
            self._remove()
            raise
        self._spec = spec

    @property
    def _kubectl(self) -> Kubectl:
        assert self._cluster  # noqa: S101
        return Kubectl(self._cluster.namespace, self._helm.context)

    def _check_reach(self) -> None:
        """Raise ClusterError without kubectl, and without the right to enter pods.

        Without either, a call would wait for pods that it cannot reach.
        """
        assert self._cluster  # noqa: S101
        self._kubectl.command()
        # Who may not ask learns it from the call.
        if not unless_refused(partial(self._cluster.is_allowed, *_ENTER), True):
            raise ClusterError(
                f"calls need the right to create pods/exec in namespace {self._cluster.namespace}, "
                "which you do not have: `hvdchart doctor` lists all rights that are missing"
            )

    def _command(self, pod: str) -> list[str]:
        """The command line that joins its standard streams with the server in the master's pod."""
        program = ("python3", f"{_PROGRAMS}/server.py", "connect")
        return self._kubectl.command("exec", "-i", pod, "-c", "master", "--", *IN_CODE, *program)

    def _shown(self) -> AbstractContextManager[Callable[[str], object]]:
        """Show the run in a notebook during a call; gives what writes the ranks' output."""
        assert self._cluster  # noqa: S101
        name = self._plan.spec.name
        return beside_call(self._cluster, name, self._kubectl, self._write, self._output is None)

    def _explain(self, error: LostError | RanksError, connection: Connection) -> str:
        """Which worker was lost, or why the master ended the server; empty for ranks' own end."""
        assert self._cluster  # noqa: S101
        is_lost = isinstance(error, LostError)
        within = _RECORD_WITHIN if is_lost else _MISS_WITHIN
        for run in watch_run(self._cluster, self._plan.spec.name, within):
            status = run.status
            workers = _workers(run)
            self._has_ended = self._has_ended or status.over
            if status.state == "not found":
                return f"release {status.name} was removed"
            if status.over or _last_change(run) != self._changed:
                reason = run.release.record.get(Key.REASON) or status.reason
                return one_line(self._word(reason) or str(error))
            gone = [name for name in self._workers if workers.get(name) != self._workers[name]]
            if gone and not is_lost:
                # The caller sees the loss before the master, which may wait for the host's answer.
                connection.end_server()
                lost = [pod for pod in run.pods if pod["metadata"]["name"] in gone]
                problem = next(filter(None, map(why_ended, lost)), None)
                why = "its pod has ended, or was replaced"
                if problem:
                    why = self._word(f"{problem.reason}; {problem.advice}".rstrip("; "))
                return f"lost {join_names(gone)}: {why}"
        return str(error) if is_lost else ""

    def _write(self, text: str) -> None:
        """Write the ranks' output as it is."""
        output = self._output or sys.stdout
        output.write(text)
        output.flush()

    def _report(self, text: str) -> None:
        """Write a remark of the launcher itself, between the ranks' output."""
        self._write(f"hvdchart: {printable(text)}\n")


def _in_arguments(text: str) -> str:
    """A text with the arguments of `launch` in the place of keys of a spec and of options."""
    return in_arguments(in_options(text))


def _last_change(run: RunView) -> tuple[str, str]:
    """Which attempt the record speaks of, and since when."""
    return run.release.record.get(Key.ATTEMPTS, ""), run.release.record.get(Key.TIME, "")


def _workers(run: RunView) -> dict[str, tuple[str, int]]:
    """The running workers by name: the pod's UID, and how often it was started again."""
    restarts = {pod.name: pod.restarts for pod in run.status.pods}
    workers = {}
    for pod in run.pods:
        if component_of(pod) == "worker" and pod["status"].get("phase") == "Running":
            name = pod["metadata"]["name"]
            workers[name] = (pod["metadata"]["uid"], restarts[name])
    return workers


def _read(
    given: str | Path | Spec | OwnRun,
    name: str,
    code: Path | None,
    report: Callable[[str], object],
) -> Spec:
    """The spec with the code and the programs as they are now. Raises SpecError and FileError.

    `report` gets a line about secrets that are left out.
    """
    if isinstance(given, OwnRun):
        spec = given.spec()
    else:
        spec = given if isinstance(given, Spec) else load_spec(given)
    if spec.launch.mode not in (None, "mpirun"):
        raise SpecError("the spec", "launch.mode", f"{spec.launch.mode!r} takes no calls", "mpirun")
    # `--code` of the command line is `code` here.
    files = list_files(code, report) if code else {}
    # The package of the programs, and cloudpickle.
    packages = ("hvdchart/__init__.py", "hvdchart/calls/__init__.py")
    ours = {f"{_FOLDER}/{file}": _IN_POD / "__init__.py" for file in packages}
    ours |= {f"{_PROGRAMS}/{file.name}": file for file in sorted(_IN_POD.glob("*.py"))}
    pickle = Path(cloudpickle.__file__).parent
    ours |= {f"{_FOLDER}/site/cloudpickle/{file.name}": file for file in pickle.glob("*.py")}
    # Some installers put links in the place of a package's files.
    files |= {name: file.resolve() for name, file in ours.items()}
    values = {**spec.values, "code": {"archive": pack_files(code or _IN_POD, files)}}
    return dataclasses.replace(spec, name=name or spec.name, values=values)


def _plan(spec: Spec, idle: float) -> Plan:
    """The plan of the run that takes the calls, and ends after `idle` seconds without one."""
    server = ("python3", f"{_PROGRAMS}/server.py", f"{idle:g}")
    rank = ("python3", f"{_PROGRAMS}/rank.py")
    return command_plan(make_plan(spec), (*server, LAUNCH, *rank), _RETRIES)


@dataclasses.dataclass
class _Shared:
    """A launcher of `launch`, and how many calls are made with it now."""

    launcher: Launcher
    calls: int = 0


# The launchers of `launch`, by their settings.
_launchers: dict[str, _Shared] = {}
# One launcher is made at a time, and one for each key. Besides, CPython up to 3.11 fails when two
# threads parse programs at once, as planning does (python/cpython#106905).
_making = threading.Lock()


def _forget_lock() -> None:
    """Make another lock: a thread that a fork does not have may have held the one before."""
    global _making  # noqa: PLW0603
    _making = threading.Lock()


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def launch(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
    workers: int | None = None,
    gpus: int | None = None,
    cpu: float | str | None = None,
    memory: str = "",
    image: str = "",
    env: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
    volumes: Mapping[str, str] | None = None,
    settings: Sequence[str] = (),
    spec: str | Path | Spec | None = None,
    code: str | Path | None = None,
    name: str = "",
    namespace: str | None = None,
    context: str | None = None,
    helm: str = "helm",
    idle: float = 600.0,
    force: bool = False,
    output: TextIO | None = None,
) -> list[Any]:
    """Call a function on each rank of a few pods; what it returns, by rank.

    The first call installs a release. The next call with the same settings uses the same pods,
    which are removed at the end of this program, or by the first call with other settings while
    they are idle: a Launcher keeps pods beside those of others. `hvdchart.close()` removes them at
    once.

    Raises CallError for what cannot travel, SpecError for wrong settings, the exception of the
    first rank that fails, RunFailedError for lost ranks, TimeLimitError after `timeout`, and
    ClusterError and HelmError where the pods cannot be had.

    function: it travels with what it refers to; modules of your own are in `code`.
    args: its arguments.
    kwargs: its arguments with names.
    timeout: seconds after which the ranks are ended, from when the workers are ready.
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
    spec: a path or a Spec in the place of the nine settings above; its command is not used.
    code: folder of modules for the function, with their requirements.txt.
    name: name of the release; by default `launch-` and six characters, or that of the spec.
    namespace: namespace of Kubernetes; by default that of the context.
    context: context of the kubeconfig; by default the current one.
    helm: the program Helm, a name on PATH or a path.
    idle: seconds without a call after which the workers end; the next call starts others.
    force: also install what cannot start now: nodes or Secrets will come.
    output: where the ranks' output goes; sys.stdout by default.
    """
    given: dict[str, Any] = {
        "workers": workers,
        "gpus": gpus,
        "cpu": cpu,
        "memory": memory,
        "image": image,
        "env": env,
        "secrets": secrets,
        "volumes": volumes,
        "settings": settings,
        "spec": spec,
        "code": code,
        "name": name,
        "namespace": namespace,
        "context": context,
        "helm": helm,
        "idle": idle,
        "force": force,
        "output": output,
    }
    with _callers_lines, _launcher(given) as launcher:
        return launcher(function, args, kwargs, timeout=timeout)


# `help` shows the settings of both.
_, _first, _others = (launch.__doc__ or "").partition("\n    workers: ")
Launcher.__doc__ = f"{Launcher.__doc__}{_first}{_others}"


def close() -> None:
    """Remove the pods of `launch`, whose next call installs others; ends calls that are being made.

    Raises HelmError and ClusterError: then the end of this program removes them.
    """
    with _making:
        ended = [shared.launcher for shared in _launchers.values()]
        _launchers.clear()
    with _callers_lines, ExitStack() as stack:
        for launcher in ended:
            stack.callback(launcher.close)


@contextmanager
def _launcher(settings: Mapping[str, Any]) -> Iterator[Launcher]:
    """The launcher of these settings during a call; another one takes the place of idle ones."""
    key = _key(settings)
    with _making:
        shared = _launchers.get(key)
        idle = {}
        if shared is None:
            shared = _Shared(Launcher(**settings))
            idle = {other: each for other, each in _launchers.items() if not each.calls}
            for other in idle:
                del _launchers[other]
            _launchers[key] = shared
        shared.calls += 1
    try:
        for each in idle.values():
            # What cannot be removed now will be at the end of this program.
            with suppress(HvdchartError):
                each.launcher.close("this call has other settings")
        yield shared.launcher
    finally:
        with _making:
            shared.calls -= 1


def _key(settings: Mapping[str, Any]) -> str:
    """The settings as one text, the same for each way to write them."""
    defaults = {"workers": ScriptRun.workers, "gpus": ScriptRun.gpus}
    same = {}
    for name, value in settings.items():
        given = defaults.get(name) if value is None else value
        if isinstance(given, Mapping):
            given = sorted(given.items())
        elif name in ("code", "spec") and isinstance(given, str | Path):
            given = str(Path(given).absolute())
        elif name == "idle" and isinstance(given, Real):
            given = float(given)
        same[name] = given or None
    return repr(same)

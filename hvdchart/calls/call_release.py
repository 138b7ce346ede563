"""The release whose ranks run the functions of a caller: install, connect, remove."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.untrusted import one_line
from hvdchart.calls.connection import Connection, ConnectionLostError, RanksError
from hvdchart.calls.own_spec import CALL_PROGRAMS
from hvdchart.doctor.rights import Right
from hvdchart.errors import ClusterError
from hvdchart.run.change.session import Session, lease_end
from hvdchart.run.follow.changes import watch_run
from hvdchart.run.helm import Helm
from hvdchart.run.kube.api import unless_refused
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.kubectl import IN_CODE, Kubectl
from hvdchart.run.kube.runs import newest_run
from hvdchart.run.state.output_pods import running_pod
from hvdchart.run.state.phases import TRAINING
from hvdchart.run.state.release import Object, component_of
from hvdchart.run.state.run_problems import why_ended
from hvdchart.run.state.view import RunView
from hvdchart.spec.model import Spec
from hvdchart.text import join_names

# Seconds until the cluster shows that a worker is gone, and until the master reports which worker
# it lost.
_LOSS_VISIBLE_TIMEOUT_SECONDS = 2.0
_LOSS_REPORT_TIMEOUT_SECONDS = 30.0
# Seconds to retry while a server that should run does not answer: the next attempt may be about to
# start.
SERVER_ANSWER_TIMEOUT_SECONDS = 60.0
# The rights that a call needs in the namespace, in addition to those to install and follow a run.
_EXEC_RIGHT = Right("", "pods/exec", "create")
_AFTER_END = "the next call starts it again"

Words: TypeAlias = Callable[[str], str]
"""Words a text for the user, who has no command line."""
Report: TypeAlias = Callable[[str], object]
"""Shows a remark to the user."""


class CallRelease:
    """A release that is installed for calls, with the connection to its call server.

    Raises ClusterError without kubectl, without the right to enter pods, and for a name that is
    taken: a call would wait for pods that it cannot reach.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        helm: Helm,
        words: Words,
        report: Report,
        answer_timeout_seconds: float = SERVER_ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        self.cluster = cluster
        self.kubectl = Kubectl(cluster.namespace, helm.context)
        self.kubectl.command()
        # A user without the right to check this gets the error from the call.
        if not unless_refused(partial(cluster.is_allowed, *_EXEC_RIGHT), True):
            raise ClusterError(
                f"calls need the right to create pods/exec in namespace {cluster.namespace}, "
                "which you do not have: `hvdchart doctor` lists all rights that are missing"
            )
        self._session = Session(cluster, name, helm, report, _AFTER_END)
        self._name = name
        self._words = words
        self._report = report
        self._answer_timeout_seconds = answer_timeout_seconds
        # The values of the last successful installation; None after a failure or a removal.
        self.spec: Spec | None = None
        self.connection: Connection | None = None
        # A call found that the run ended.
        self._has_ended = False
        # The record's last change, and the workers, when the connection was made.
        self._changed = ("", "")
        self._workers: dict[str, tuple[str, int]] = {}

    def invalidate(self) -> None:
        """Let the next call install the release again, even if a later step fails."""
        self.spec = None
        self._has_ended = False

    def install(self, spec: Spec, values: Object) -> None:
        """Install the release, or upgrade it. Raises HelmError and ClusterError."""
        self._session.upgrade(values)
        self.spec = spec

    def remove(self) -> None:
        """Close the connection, and remove the release. Raises HelmError and ClusterError."""
        self.disconnect()
        self.spec = None
        self._session.remove()

    def disconnect(self) -> None:
        """Close the connection, if there is one; the run continues."""
        if self.connection:
            self.connection.close()
        self.connection = None

    def connect(self, check: Callable[[], None]) -> Connection | RunView:
        """Return a connection to the run once it takes calls, or the run if it has ended.

        `check` is called at each change; an exception that it raises ends the wait. Raises
        ClusterError when a server that should run does not answer.
        """
        began = time.monotonic()
        last = ""
        problem = ""
        silent_since: float | None = None
        for run in watch_run(self.cluster, self._name):
            check()
            if run.status.over or run.status.is_stuck or run.status.state == "not found":
                return run
            if run.phase.name == TRAINING:
                try:
                    self.connection = Connection(self._server_command(run))
                except ClusterError as error:
                    # The next attempt may be about to start.
                    silent_since = silent_since or time.monotonic()
                    if time.monotonic() - silent_since > self._answer_timeout_seconds:
                        raise
                    problem = f"; {error}"
                else:
                    now = newest_run(self.cluster, self._name)
                    self._changed = _last_change(now)
                    self._workers = _running_workers(now)
                    return self.connection
            shown = self._words(f"{run.phase}{problem}")
            if shown != last:
                self._report(f"{time.monotonic() - began:5.1f} s  {shown}")
            last = shown
        raise AssertionError("a run is watched until it ends")

    def _server_command(self, run: RunView) -> list[str]:
        """Return the command that connects its streams to the server in the master's pod."""
        pod = running_pod(run, "master")["metadata"]["name"]
        program = ("python3", f"{CALL_PROGRAMS}/call_server.py", "connect")
        return self.kubectl.command("exec", "-i", pod, "-c", "master", "--", *IN_CODE, *program)

    def why_again(self, run: RunView, *, is_new: bool, idle: float) -> str:
        """Explain why a run that has ended is started again; return an empty text for a failed run.

        `is_new`: the run was just installed or upgraded. `idle`: the run ends after so many seconds
        without a call.
        """
        status = run.status
        if status.state == "finished":
            return f"the workers have ended after {idle:g} s without a call"
        if status.state == "not found" and not is_new:
            return f"release {status.name} was removed by somebody else: installing it again"
        if self._has_ended or lease_end(run.release):
            return f"the run has ended: {one_line(status.reason)}; starting it again"
        return ""

    def explain(self, error: ConnectionLostError | RanksError, connection: Connection) -> str:
        """Return the lost worker, or why the master ended the server; empty if only ranks ended."""
        is_lost = isinstance(error, ConnectionLostError)
        timeout_seconds = _LOSS_REPORT_TIMEOUT_SECONDS if is_lost else _LOSS_VISIBLE_TIMEOUT_SECONDS
        for run in watch_run(self.cluster, self._name, timeout_seconds):
            status = run.status
            workers = _running_workers(run)
            self._has_ended = self._has_ended or status.over
            if status.state == "not found":
                return f"release {status.name} was removed"
            if status.over or _last_change(run) != self._changed:
                reason = run.release.record.get(RecordKey.REASON) or status.reason
                return one_line(self._words(reason) or str(error))
            gone = [name for name, known in self._workers.items() if workers.get(name) != known]
            if gone and not is_lost:
                # The caller sees the loss before the master, which may still wait for the host's
                # answer.
                connection.end_server()
                lost = [pod for pod in run.pods if pod["metadata"]["name"] in gone]
                problem = next(filter(None, map(why_ended, lost)), None)
                reason = "its pod has ended, or was replaced"
                if problem:
                    reason = self._words(f"{problem.reason}; {problem.remedy}".rstrip("; "))
                return f"lost {join_names(gone)}: {reason}"
        return str(error) if is_lost else ""


def _last_change(run: RunView) -> tuple[str, str]:
    """Return the attempt in the record, and the record's time."""
    record = run.release.record
    return record.get(RecordKey.ATTEMPTS, ""), record.get(RecordKey.TIME, "")


def _running_workers(run: RunView) -> dict[str, tuple[str, int]]:
    """Return the running workers by name: the pod's UID, and its number of restarts."""
    restarts = {pod.name: pod.restarts for pod in run.status.pods}
    workers = {}
    for pod in run.pods:
        if component_of(pod) == "worker" and pod["status"].get("phase") == "Running":
            name = pod["metadata"]["name"]
            workers[name] = (pod["metadata"]["uid"], restarts[name])
    return workers

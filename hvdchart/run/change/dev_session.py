"""A release that runs each saved version of the user's code, until the command `dev` ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from hvdchart.errors import FileError, HvdchartError
from hvdchart.plan.model import Plan
from hvdchart.run.change.session import Session
from hvdchart.run.follow.lines import readable_lines
from hvdchart.run.follow.logs import LogLine, follow_logs
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import newest_run
from hvdchart.run.state.view import RunView
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import NEXT_CHANGE
from hvdchart.values.check_values import checked_values


class Project(Protocol):
    """The code that a session runs; its methods raise HvdchartError."""

    @property
    def name(self) -> str:
        """How the user names the code."""

    def plan(self, version: Mapping[str, Plain]) -> Plan:
        """Return the plan of a version of the code."""

    def add_image(self, plan: Plan, provided: Collection[str]) -> Plan:
        """Return the plan with the project's image; `provided` are the tags added so far."""

    def check(self, values: dict[str, Plain]) -> None:
        """Refuse values whose run can never start."""


class DevSession:
    """The release of one call of `dev`, from its first run to its end.

    `report` gets remarks for the user, also from another thread, and `print_log` the lines of each
    run.
    """

    def __init__(
        self,
        cluster: Cluster,
        helm: Helm,
        project: Project,
        report: Callable[[str], object],
        print_log: Callable[[Iterable[LogLine]], None],
        *,
        create_namespace: bool,
    ) -> None:
        self._cluster = cluster
        self._helm = helm
        self._project = project
        self._report = report
        self._create_namespace = create_namespace
        self._log = _Log(cluster, report, print_log)
        self._begun = 0
        self._name = ""
        self._session: Session | None = None
        # The tags of the images built so far.
        self._provided: set[str] = set()
        # The files of the last version that this machine's Python cannot parse.
        self._broken: Mapping[str, str] | None = None
        # The values except the code of the last upgrade that Kubernetes validated.
        self._validated: Mapping[str, Plain] | None = None

    def run(self, version: Mapping[str, Plain]) -> None:
        """Run a version of the code, or report why this fails and wait for the next version.

        Raises HvdchartError when the first version cannot be run.
        """
        is_first = not self._session
        try:
            plan = self._plan(version)
            # The launcher of a replaced run prints errors about the replacement.
            self._log.mute(self._log.printed)
            if not is_first:
                self._report(f"{self._project.name} saved: run {self._begun + 1}")
            self._upgrade(plan)
            self._begun += 1
        except HvdchartError as error:
            if is_first:
                raise
            self._log.mute(set())
            self._report(f"{error}; {NEXT_CHANGE}")
            return
        self._log.show(plan.spec.name)

    def _plan(self, version: Mapping[str, Plain]) -> Plan:
        """Return the plan of a version. Raises FileError for a file that was Python before."""
        planned = self._project.plan(version)
        broken = planned.framework.broken
        for file, problem in broken.items():
            if self._broken is not None and file not in self._broken:
                # Without the imports of such a file, the plan would differ.
                raise FileError(problem)
        self._broken = broken
        project_plan = self._project.add_image(planned, self._provided)
        if project_plan is not planned:
            image: Any = project_plan.spec.values["image"]
            self._provided.add(image["tag"])
        return project_plan

    def _upgrade(self, plan: Plan) -> None:
        values = checked_values(plan)
        others = {key: value for key, value in values.items() if key != "code"}
        name = plan.spec.name
        if self._session and name != self._name:
            self._session.remove()
            self._session = None
        if self._session is None:
            again = "save a change to run again"
            self._project.check(values)
            self._session = Session(self._cluster, name, self._helm, self._report, again)
            self._name = name
        self._session.upgrade(
            values,
            create_namespace=self._create_namespace,
            # A change of the code changes no fields of the objects, and their validation takes a
            # while.
            is_validated=others != self._validated,
        )
        self._validated = others

    def close(self) -> None:
        """Uninstall the release, if there is one."""
        if not self._session or not self._session.is_begun:
            return
        namespace = self._cluster.namespace
        try:
            self._log.mute(self._log.printed)
            self._report(f"uninstalling release {self._name}")
            is_removed = self._session.remove()
        except KeyboardInterrupt:
            self._report(f"to remove what is left: hvdchart undeploy {self._name} -n {namespace}")
            raise
        if is_removed:
            self._report(f"release {self._name} uninstalled from namespace {namespace}")


class _Log:
    """Prints the master's log of each run in the background, and how the run ended."""

    def __init__(
        self,
        cluster: Cluster,
        report: Callable[[str], object],
        print_log: Callable[[Iterable[LogLine]], None],
    ) -> None:
        self._cluster = cluster
        self._report = report
        self._print_log = print_log
        self._name = ""
        self._wanted = threading.Event()
        self.printed: set[str] = set()
        # The pods whose lines are no longer printed: their run is replaced or removed.
        self._muted: frozenset[str] = frozenset()
        self._reported = ""
        threading.Thread(target=self._print, name="log", daemon=True).start()

    def show(self, name: str) -> None:
        """Print the release's newest run; after an earlier run, continue with this one."""
        self._name = name
        self._wanted.set()

    def mute(self, pods: set[str]) -> None:
        """Stop printing the lines of these pods, and print those of other muted pods again."""
        self._muted = frozenset(pods)

    def _print(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                self._print_run()
            except HvdchartError as error:
                self._report(f"{error}; the run continues, without its log here")

    def _print_run(self) -> None:
        run = newest_run(self._cluster, self._name)
        self._print_log(readable_lines(self._lines(), run))
        current = newest_run(self._cluster, self._name).status
        # A run that replaced another one may have been printed together with it.
        if current.job in (self._reported, ""):
            return
        self._reported = current.job
        progress = f" at {current.progress.text(is_over=True)}" if current.progress else ""
        reason = f": {current.reason}" if current.reason else ""
        self._report(f"run {current.state}{progress}{reason}")

    def _look(self, run: RunView) -> None:
        """Print once that somebody stopped a run: the log of such a run does not end."""
        current = run.status
        if current.state == "suspended" and current.job not in (self._reported, ""):
            self._reported = current.job
            self._report("run stopped by somebody else; save a change to run again")

    def _lines(self) -> Iterator[LogLine]:
        earlier = frozenset(self.printed)
        for line in follow_logs(self._cluster, self._name, component="master", seen=self._look):
            # The pods of previous runs are deleted a moment later.
            if line.pod not in earlier | self._muted:
                self.printed.add(line.pod)
                yield line

"""The command `dev`: runs the user's code at each save."""

import threading
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hvd_pods.common.contract import OUTPUT_PER_RUN
from hvdchart.cli import options, planning
from hvdchart.cli.build import with_own_image
from hvdchart.cli.option_groups import takes_groups
from hvdchart.cli.terminal import note, print_log, say
from hvdchart.errors import FileError, HvdchartError
from hvdchart.spec.run_options import ScriptRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hvdchart.plan.model import Plan
    from hvdchart.run.change.session import Session
    from hvdchart.run.follow.logs import LogLine
    from hvdchart.run.helm import Helm
    from hvdchart.run.kube.cluster import Cluster
    from hvdchart.run.state.view import RunView
    from hvdchart.spec.yaml_tree import Plain

# `dev` does not retry a failed run, and the workers wait for the next change.
_VALUES = {"cleanup": "Never", "master": {"backoffLimit": 0}}
# Each version of the code starts without a checkpoint: the checkpoint of the previous version could
# leave no steps to train.
_ANEW = f'train.env.{OUTPUT_PER_RUN}="1"'
# The number of revisions that Helm keeps: it reads all of them several times at each save.
_REVISIONS = 2


@takes_groups
def dev(
    named: options.Named = None,
    code: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Script or folder to watch and to run (default: the folder of the spec).",
        ),
    ] = None,
    *,
    given: ScriptRun,
    settings: options.Settings = None,
    fail_on_nan: options.FailOnNan = False,
    install: options.InstallOptions,
    engine: options.Engine = None,
    load_with: options.LoadWith = "",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue from what earlier runs have written to OUTPUT_PATH."
        ),
    ] = False,
) -> None:
    """Run the code, and run it again each time that it is saved.

    The project's image is built first, as `deploy` does. The workers stay between the runs. Each
    run has an empty OUTPUT_PATH of its own, and so starts without a checkpoint. Ctrl-C uninstalls
    the release, and so do SIGTERM and a closed terminal. A release that is there already is refused
    for that reason. The cluster ends the run by itself if this command is killed, or its machine
    sleeps for ten minutes. The options from --workers to --name are for a script, as for `run`.

    Examples:
      hvdchart dev my-project
      hvdchart dev train.py --workers 4 -- --epochs 3
      hvdchart dev run.spec.yaml --code . --namespace team
      hvdchart dev run.spec.yaml --code train.py --set nodes.0.count=1

    Exit codes: 2, 3, 4 an option, the spec or the values are wrong; 5 the code cannot be read, or
    is no Python; 6 Helm failed; 7 the cluster cannot be used, the release exists, or the run cannot
    start; 9 the image cannot be built; 130 interrupted, and the release is uninstalled.
    """
    from hvdchart.code.changes import code_changes
    from hvdchart.interrupts import interrupting_signals

    script = planning.Script.of_words(named or (), given, code)
    watched = _watched(script, named or (), code)
    cluster, helm = install.connect()
    helm = replace(helm, revisions=_REVISIONS)
    planner = _Planner(
        watched,
        script=script,
        settings=[
            *([] if resume else [_ANEW]),
            *options.chosen_settings(settings, fails_on_nan=fail_on_nan),
        ],
        build=partial(with_own_image, cluster=cluster, engine=engine, load_with=load_with),
    )
    name = watched.code.resolve().name
    runs = _Runs(
        cluster,
        helm,
        planner.plan,
        name,
        create_namespace=install.create_namespace,
        force=install.force,
    )
    with interrupting_signals(), closing(runs):
        for change in code_changes(watched.code, say):
            if isinstance(change, FileError):
                say(f"{change}; waiting for the next change")
            else:
                runs.run(change)


class _Watched(NamedTuple):
    """The code whose changes count, and the script or the spec files that it runs with."""

    code: Path
    paths: list[Path]


def _watched(
    script: planning.Script | None,
    named: "Sequence[str]",
    code: Path | None,
) -> _Watched:
    """Return the code to watch. Raises BadParameter and FileError if it cannot be watched."""
    paths = [script.path] if script else planning.spec_files(list(map(Path, named)), code)
    if code is None:
        first = next((path for path in paths if path != Path("-")), None)
        if first is None:
            raise typer.BadParameter(
                "name a script, a project or a spec; for a spec on standard input, also --code"
            )
        code = first if script else first.parent
    if script:
        script.command()
    for path in (*paths, code):
        planning.check_has_spec(path, "dev")
        if path != Path("-") and not path.exists():
            raise FileError(f"{path}: no such file or folder")
    return _Watched(code, paths)


class _Planner:
    """Makes the plan of each version of the code, with its image.

    `build` is with_own_image with its settings.
    """

    def __init__(
        self,
        watched: _Watched,
        *,
        script: planning.Script | None,
        settings: list[str],
        build: "Callable[..., Plan]",
    ) -> None:
        self._watched = watched
        self._script = script
        self._settings = settings
        self._build = build
        # The tags of the images built so far.
        self._provided: set[str] = set()
        # The remarks printed so far: one that repeats at each save is printed once.
        self._report = cache(note)
        # The files of the last version that this machine's Python cannot parse.
        self._broken: Mapping[str, str] | None = None

    def plan(self, version: "Mapping[str, Plain]") -> "Plan":
        """Return the plan of a version. Raises FileError for a file that was Python before."""
        planned = self._plan(version)
        broken = planned.framework.broken
        for file, problem in broken.items():
            if self._broken is not None and file not in self._broken:
                # Without the imports of such a file, the plan would differ.
                raise FileError(problem)
        self._broken = broken
        made = self._build(planned, self._watched.paths, provided=self._provided)
        planning.print_warnings(made, self._report)
        if made is not planned:
            image: Any = made.spec.values["image"]
            self._provided.add(image["tag"])
        return made

    def _plan(self, version: "Mapping[str, Plain]") -> "Plan":
        values = {**_VALUES, "code": version}
        if self._script:
            chosen = self._script.plan(self._settings, values, self._report, is_marked=True)
            return chosen.plan
        planning.tell_left_behind(self._watched.code, version, self._report)
        return planning.plan_specs(self._watched.paths, self._settings, values)[1]


class _Runs:
    """The release of one call of `dev`, from its first run to its end.

    `code` is how its user names the code. With `force`, the release is installed even if it cannot
    start now.
    """

    def __init__(
        self,
        cluster: "Cluster",
        helm: "Helm",
        make_plan: "Callable[[Mapping[str, Plain]], Plan]",
        code: str,
        *,
        create_namespace: bool,
        force: bool,
    ) -> None:
        self._cluster = cluster
        self._helm = helm
        self._make_plan = make_plan
        self._code = code
        self._begun = 0
        self._create_namespace = create_namespace
        self._force = force
        self._log = _Log(cluster)
        self._name = ""
        self._session: Session | None = None
        # The values except the code of the last upgrade that Kubernetes validated.
        self._validated: Mapping[str, Plain] | None = None

    def run(self, version: "Mapping[str, Plain]") -> None:
        """Run a version of the code, or print why this fails and wait for the next version.

        Raises HvdchartError when the first version cannot be run.
        """
        is_first = not self._session
        try:
            plan = self._make_plan(version)
            # The launcher of a replaced run prints errors about the replacement.
            self._log.mute(self._log.printed)
            if not is_first:
                say(f"{self._code} saved: run {self._begun + 1}")
            self._upgrade(plan)
            self._begun += 1
        except HvdchartError as error:
            if is_first:
                raise
            self._log.mute(set())
            say(f"{error}; waiting for the next change")
            return
        self._log.show(plan.spec.name)

    def _upgrade(self, plan: "Plan") -> None:
        from hvdchart.doctor.examine import check_before_install
        from hvdchart.run.change.session import Session
        from hvdchart.values.check_values import checked_values

        values = checked_values(plan)
        others = {key: value for key, value in values.items() if key != "code"}
        name = plan.spec.name
        if self._session and name != self._name:
            self._session.remove()
            self._session = None
        if self._session is None:
            again = "save a change to run again"
            if not self._force:
                check_before_install(self._cluster, values)
            self._session = Session(self._cluster, name, self._helm, say, again)
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
        where = self._cluster.namespace
        try:
            self._log.mute(self._log.printed)
            say(f"uninstalling release {self._name}")
            is_removed = self._session.remove()
        except KeyboardInterrupt:
            say(f"to remove what is left: hvdchart undeploy {self._name} -n {where}")
            raise
        if is_removed:
            say(f"release {self._name} uninstalled from namespace {where}")


class _Log:
    """Prints the master's log of each run in the background, and how the run ended."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
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
                say(f"{error}; the run continues, without its log here")

    def _print_run(self) -> None:
        from hvdchart.run.follow.lines import readable_lines
        from hvdchart.run.kube.runs import newest_run

        run = newest_run(self._cluster, self._name)
        print_log(readable_lines(self._lines(), run))
        current = newest_run(self._cluster, self._name).status
        # A run that replaced another one may have been printed together with it.
        if current.job in (self._reported, ""):
            return
        self._reported = current.job
        progress = f" at {current.progress.text(is_over=True)}" if current.progress else ""
        reason = f": {current.reason}" if current.reason else ""
        say(f"run {current.state}{progress}{reason}")

    def _look(self, run: "RunView") -> None:
        """Print once that somebody stopped a run: the log of such a run does not end."""
        current = run.status
        if current.state == "suspended" and current.job not in (self._reported, ""):
            self._reported = current.job
            say("run stopped by somebody else; save a change to run again")

    def _lines(self) -> "Iterator[LogLine]":
        from hvdchart.run.follow.logs import follow

        earlier = frozenset(self.printed)
        for line in follow(self._cluster, self._name, component="master", seen=self._look):
            # The pods of previous runs are deleted a moment later.
            if line.pod not in earlier | self._muted:
                self.printed.add(line.pod)
                yield line

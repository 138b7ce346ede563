"""The command `dev`: runs the user's code at each save."""

from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hvd_pods.shared.contract import OUTPUT_PER_RUN
from hvdchart.cli import options, planning
from hvdchart.cli.build import use_built_image
from hvdchart.cli.option_groups import expand_option_groups
from hvdchart.cli.terminal import print_log, print_notes, print_remark
from hvdchart.errors import FileError
from hvdchart.script.options import ScriptRun
from hvdchart.text import NEXT_CHANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hvdchart.plan.model import Plan
    from hvdchart.run.kube.cluster import Cluster
    from hvdchart.spec.yaml_tree import Plain

# `dev` does not retry a failed run, and the workers wait for the next change.
_VALUES = {"cleanup": "Never", "master": {"backoffLimit": 0}}
# Each version of the code starts without a checkpoint: the checkpoint of the previous version could
# leave no steps to train.
_OWN_OUTPUT_SETTING = f'train.env.{OUTPUT_PER_RUN}="1"'
# The number of revisions that Helm keeps: it reads all of them several times at each save.
_KEPT_REVISIONS = 2


@expand_option_groups
def dev(
    sources: options.RunSources = None,
    code: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Script or folder to watch and to run (default: the folder of the spec).",
        ),
    ] = None,
    *,
    script_run: ScriptRun,
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
    from hvdchart.run.change.dev_session import DevSession

    script = planning.Script.of_words(sources or (), script_run, code)
    watched = _find_watched_code(script, sources or (), code)
    cluster, helm = install.connect()
    chosen = options.chosen_settings(settings, fails_on_nan=fail_on_nan)
    project = _Project(
        watched,
        script,
        chosen if resume else [_OWN_OUTPUT_SETTING, *chosen],
        cluster,
        engine,
        load_with,
        is_checked=not install.force,
    )
    session = DevSession(
        cluster,
        replace(helm, revisions=_KEPT_REVISIONS),
        project,
        print_remark,
        print_log,
        create_namespace=install.create_namespace,
    )
    with closing(session):
        for change in code_changes(watched.code, print_remark):
            if isinstance(change, FileError):
                print_remark(f"{change}; {NEXT_CHANGE}")
            else:
                session.run(change)


class _Watched(NamedTuple):
    """The code whose changes count, and the script or the spec files that it runs with."""

    code: Path
    paths: list[Path]


def _find_watched_code(
    script: planning.Script | None,
    sources: "Sequence[str]",
    code: Path | None,
) -> _Watched:
    """Return the code to watch. Raises BadParameter and FileError if it cannot be watched."""
    paths = [script.path] if script else planning.spec_files(list(map(Path, sources)), code)
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


@dataclass(frozen=True)
class _Project:
    """The project of a session: plans a version of the code, builds its image, and checks it."""

    watched: _Watched
    script: planning.Script | None
    settings: list[str]
    cluster: "Cluster"
    engine: str | None
    load_with: str
    is_checked: bool
    # A remark that repeats at each save is printed once.
    report: "Callable[[str], object]" = field(default_factory=lambda: cache(print_notes))

    @property
    def name(self) -> str:
        return self.watched.code.resolve().name

    def plan(self, version: "Mapping[str, Plain]") -> "Plan":
        values = {**_VALUES, "code": version}
        if self.script:
            return self.script.plan(self.settings, values, self.report, is_marked=True).plan
        planning.warn_of_left_behind(self.watched.code, version, self.report)
        return planning.plan_specs(self.watched.paths, self.settings, values)[1]

    def add_image(self, plan: "Plan", provided: "Collection[str]") -> "Plan":
        project_plan = use_built_image(
            plan,
            self.watched.paths,
            self.cluster,
            engine=self.engine,
            load_with=self.load_with,
            provided=provided,
        )
        planning.print_warnings(project_plan, self.report)
        return project_plan

    def check(self, values: "dict[str, Plain]") -> None:
        from hvdchart.doctor.examine import check_before_install

        if self.is_checked:
            check_before_install(self.cluster, values)

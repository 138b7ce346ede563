"""The command `deploy`, and how it and `run` follow the run that they have started."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli import options
from hvdchart.cli.build import with_own_image
from hvdchart.cli.terminal import note, print_log, raise_unless_finished, say, show, write_document
from hvdchart.errors import ClusterError, HelmError, RunFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hvdchart.plan.model import Plan
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.helm import Helm as Program
    from hvdchart.run.view import RunView

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the manifests, checked by the API server.")
]
Diff = Annotated[bool, typer.Option("--diff", help="Print what would change; change nothing.")]
Build = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Build this folder's Dockerfile first (default: the spec's folder, where it has one "
        "and image.tag is not set).",
    ),
]
NoBuild = Annotated[bool, typer.Option("--no-build", help="Build no image.")]
NoPush = Annotated[
    bool, typer.Option("--no-push", help="Neither push nor load the image: the nodes have it.")
]


def deploy(
    specs: options.Specs = None,
    files: options.Files = None,
    settings: options.Settings = None,
    fail_on_nan: options.FailOnNan = False,
    values: options.ValuesFiles = None,
    code: options.Code = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    helm: options.Helm = "helm",
    create_namespace: options.CreateNamespace = False,
    is_followed: options.Followed = True,
    wait: options.Wait = False,
    dry_run: DryRun = False,
    diff: Diff = False,
    build: Build = None,
    no_build: NoBuild = False,
    no_push: NoPush = False,
    builder: options.Builder = None,
    load_with: options.LoadWith = "",
    force: options.Force = False,
) -> None:
    """Install or upgrade a run, and follow its phases and logs until it ends.

    A folder is a project: its spec and its code. If the project has a Dockerfile, the command first
    builds its image and pushes it, or loads it with --load-with, unless that was done for the
    same content. Interrupting the command does not stop the run.

    Examples:
      hvdchart deploy run.spec.yaml
      hvdchart deploy run.spec.yaml --set nodes.0.count=8 --detach
      hvdchart deploy my-project
      hvdchart deploy run.spec.yaml --code train.py --wait
      hvdchart deploy run.spec.yaml --diff
      hvdchart deploy run.spec.yaml --build . --builder podman
      hvdchart deploy run.spec.yaml --load-with "minikube image load"

    Exit codes: 0 the run finished; 3, 4 the spec or the values are wrong; 6 Helm failed; 7 the
    cluster cannot be used; 8 the run failed; 9 the image cannot be built or pushed; 130
    interrupted, and the run continues.
    """
    from hvdchart.files import text_difference
    from hvdchart.run import helm as helm_module

    if build and no_build:
        raise typer.BadParameter("--build and --no-build contradict each other")
    named = [*(specs or ()), *(files or ())]
    if options.is_script(named):
        raise typer.BadParameter(f"{named[0]} is a script: hvdchart run {named[0]}")
    chosen = options.chosen_settings(settings, fails_on_nan=fail_on_nan)
    paths, plan = options.plan_project(specs, files, chosen, code, values)
    options.print_warnings(plan)
    cluster = options.connect(context, namespace)
    program = helm_module.Helm(helm, context)
    present = _check_name(cluster, plan.spec.name, program)
    if not (force or dry_run or diff):
        options.check_room(plan, cluster)
    if not no_build:
        try:
            plan = with_own_image(
                plan,
                paths,
                cluster,
                folder=build,
                pushes=not no_push,
                is_preview=dry_run or diff,
                builder=builder,
                load_with=load_with,
            )
        except KeyboardInterrupt:
            note("", "nothing was deployed")
            raise
    if dry_run or diff:
        manifests = helm_module.preview(plan, cluster.namespace, program)
        if not diff:
            write_document(manifests[1])
            return
        before, after = map(helm_module.without_archives, manifests)
        show(*text_difference(before, after, "installed", "deploy").splitlines())
        return
    launch(
        plan,
        cluster,
        program,
        present,
        create_namespace=create_namespace,
        is_followed=is_followed,
        wait=wait,
    )


def launch(
    plan: "Plan",
    cluster: "Cluster",
    program: "Program",
    before: "RunView | None" = None,
    *,
    create_namespace: bool,
    is_followed: bool,
    wait: bool,
) -> None:
    """Install or upgrade a run, and follow it; `before` is the one so far, if it was read.

    With `wait`, phases and progress are printed instead of logs. With neither `is_followed` nor
    `wait`, returns when Helm has changed the release. Raises the errors of Helm and the cluster,
    and RunFailedError when the run that is followed fails or is replaced.
    """
    from hvdchart.quantity import pluralize
    from hvdchart.run.control import remove_incomplete
    from hvdchart.run.helm import upgrade
    from hvdchart.values.check import checked_values

    name = plan.spec.name
    earlier = (before or _check_name(cluster, name, program)).status
    where = f"{name} --namespace {cluster.namespace}"
    values = checked_values(plan)
    try:
        revision = upgrade(
            name, cluster.namespace, values, program, create_namespace=create_namespace
        )
    except KeyboardInterrupt:
        note(
            "",
            f"interrupted while Helm changed release {name}: see hvdchart status {where}; deploy "
            f"it again to complete it, or remove it with hvdchart undeploy {where}",
        )
        raise
    except HelmError:
        # The error of Helm is the one to report.
        with suppress(HelmError, ClusterError):
            if not earlier.job and remove_incomplete(cluster, name, program):
                note(f"what Helm had created of release {name} is removed again")
        raise
    note(
        f"release {name} in namespace {cluster.namespace}, revision {revision}: "
        f"{pluralize(plan.ranks, 'rank')} on {pluralize(plan.workers, 'worker')}"
    )
    run = cluster.newest_run(name)
    current = run.status
    # The run that was replaced may be someone else's.
    if current.job == earlier.job and earlier.over:
        say(f"nothing has changed since the run ended; to run it again: hvdchart restart {where}")
    elif earlier.is_active and current.job != earlier.job:
        step = f" at {earlier.progress.text(is_over=True)}" if earlier.progress else ""
        say(f"this run replaces the earlier one, which was {earlier.state}{step}")
    if not (is_followed or wait):
        note(f"next: hvdchart logs {where}")
        return
    try:
        _follow(cluster, run, has_logs=not wait)
    except KeyboardInterrupt:
        note("", f"the run continues: hvdchart logs {where}")
        raise


def _check_name(cluster: "Cluster", name: str, helm: "Program") -> "RunView":
    """The release's newest run so far.

    Raises ClusterError when the name is that of another chart's release.
    """
    from hvdchart.run.helm import release_chart

    run = cluster.newest_run(name)
    # `helm upgrade --install` would turn a release of any other chart into a run.
    chart = None if run.release.exists else release_chart(name, cluster.namespace, helm)
    if chart not in (None, "horovod"):
        raise ClusterError(
            f"{name} is the name of a release of chart {chart} in namespace {cluster.namespace}: "
            "choose another with --set name=NAME, or under `run` with --name NAME"
        )
    return run


def _follow(cluster: "Cluster", run: "RunView", *, has_logs: bool) -> None:
    """Print logs, or else phases with progress, until the run is over, and how it ended.

    Raises RunFailedError when it fails, or when another run takes its place.
    """
    from hvdchart.run.lines import readable_lines
    from hvdchart.run.logs import follow
    from hvdchart.run.report import status_report
    from hvdchart.run.watch import wait_for_end

    current = run.status
    name = current.name
    if current.job and current.state != "suspended":
        seen = _phase_printer(has_progress=not has_logs)
        if has_logs:
            lines = follow(cluster, name, warnings=True, seen=seen)
            print_log(readable_lines(lines, name, word=run.word, report=say))
        else:
            wait_for_end(cluster, name, seen=seen)
        job = current.job
        current = cluster.newest_run(name).status
        # A Job that has ended may have been deleted.
        if current.job not in (job, ""):
            raise RunFailedError(
                f"run {name} was replaced before it ended: the run that took its place is "
                f"{current.state}"
            )
    note(*status_report(current, cluster.namespace))
    if current.is_stuck:
        note(f"the run waits; to remove it: hvdchart undeploy {name} -n {cluster.namespace}")
    raise_unless_finished(current)


def _phase_printer(*, has_progress: bool) -> "Callable[[RunView], None]":
    """Prints each phase of a run; with `has_progress` also each step, as the log has it."""
    from hvdchart.run.phases import DONE, TRAINING, Phase

    began = time.monotonic()
    last = Phase("")

    def show_phase(run: "RunView") -> None:
        nonlocal last
        phase = run.phase
        if phase.name == TRAINING and not has_progress:
            phase = Phase(TRAINING)
        if phase != last and last.name != DONE:
            say(f"{time.monotonic() - began:5.1f} s  {phase}")
            last = phase

    return show_phase

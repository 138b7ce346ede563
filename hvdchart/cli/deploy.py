"""The command `deploy`."""

from typing import Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.build import use_built_image
from hvdchart.cli.following import install_and_follow, require_own_run
from hvdchart.cli.option_groups import expand_option_groups
from hvdchart.cli.terminal import print_lines, print_notes

Diff = Annotated[
    bool,
    typer.Option(
        "--diff",
        help="Print what would change, checked by the API server; change nothing.",
    ),
]
NoPush = Annotated[
    bool, typer.Option("--no-push", help="Neither push nor load the image: the nodes have it.")
]


@expand_option_groups
def deploy(
    specs: options.Specs = None,
    settings: options.Settings = None,
    fail_on_nan: options.FailOnNan = False,
    code: options.Code = None,
    *,
    install: options.InstallOptions,
    follow: options.FollowOptions,
    diff: Diff = False,
    no_push: NoPush = False,
    engine: options.Engine = None,
    load_with: options.LoadWith = "",
) -> None:
    """Install or upgrade a run, and follow its phases and logs until it ends.

    A folder is a project: its spec and its code. If the project has a Dockerfile, and the spec's
    image neither a tag nor a digest, the command first builds its image and pushes it, or loads it
    with --load-with, unless that was done for the same content. Interrupting the command does not
    stop the run.

    Examples:
      hvdchart deploy run.spec.yaml
      hvdchart deploy run.spec.yaml --set nodes.0.count=8 --detach
      hvdchart deploy my-project
      hvdchart deploy run.spec.yaml --code train.py --wait
      hvdchart deploy run.spec.yaml --diff
      hvdchart deploy my-project --engine podman
      hvdchart deploy run.spec.yaml --load-with "minikube image load"

    Exit codes: 0 the run finished; 2, 3, 4 an option, the spec or the values are wrong; 5 a file
    cannot be read; 6 Helm failed; 7 the cluster cannot be used; 8 the run failed; 9 the image
    cannot be built or pushed; 130 interrupted, and the run continues.
    """
    from hvdchart.doctor.examine import check_before_install
    from hvdchart.files import text_difference
    from hvdchart.run.helm import preview_upgrade
    from hvdchart.run.manifests import shorten_archives
    from hvdchart.values.check_values import checked_values

    planning.refuse_script(specs)
    chosen = options.chosen_settings(settings, fails_on_nan=fail_on_nan)
    paths, plan = planning.plan_project(specs, chosen, code)
    planning.print_warnings(plan)
    # Report values that the chart refuses before connecting to the cluster.
    checked = checked_values(plan)
    cluster, helm = install.connect()
    present = require_own_run(cluster, plan.spec.name, helm)
    if not (install.force or diff):
        check_before_install(cluster, checked)
    try:
        plan = use_built_image(
            plan,
            paths,
            cluster,
            pushes=not no_push,
            is_preview=diff,
            engine=engine,
            load_with=load_with,
        )
    except KeyboardInterrupt:
        print_notes("", "nothing was deployed")
        raise
    if diff:
        manifests = preview_upgrade(plan, cluster.namespace, helm)
        before, after = map(shorten_archives, manifests)
        print_lines(*text_difference(before, after, "installed", "deploy").splitlines())
        return
    install_and_follow(
        plan,
        cluster,
        helm,
        present,
        create_namespace=install.create_namespace,
        detach=follow.detach,
        wait=follow.wait,
    )

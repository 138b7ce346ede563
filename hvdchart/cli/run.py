"""The command `run`: trains a script without a spec and without an image of its own."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.following import install_and_follow, require_own_run
from hvdchart.cli.option_groups import expand_option_groups
from hvdchart.cli.terminal import print_remark
from hvdchart.errors import ClusterError
from hvdchart.script.options import ScriptRun


@expand_option_groups
def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT...", help="Its arguments, after --.")
    ] = None,
    code: options.Code = None,
    *,
    script_run: ScriptRun,
    settings: options.Settings = None,
    fail_on_nan: options.FailOnNan = False,
    save_spec: Annotated[
        Path | None,
        typer.Option(
            "--save-spec", metavar="FILE", help="Also write the run as a spec, for `deploy`."
        ),
    ] = None,
    install: options.InstallOptions,
    follow: options.FollowOptions,
) -> None:
    """Run a script on a few workers, without a spec.

    The master copies the script to the workers, or with --code the folder that it is in. Without
    --image, the run uses a public image of the framework that the script imports.

    Examples:
      hvdchart run train.py
      hvdchart run train.py --workers 4 --cpu 8 --memory 16Gi -- --epochs 3
      hvdchart run train.py --gpus 1 --image registry.example/team/train:1
      hvdchart run train.py --volume data=pvc:scans:/data:ro --env LEVEL=2 --secret wandb
      hvdchart run my-project/train.py --code my-project --detach

    Exit codes: 0 the run finished; 2, 3, 4 an option has a wrong value; 5 the script cannot be
    read, or is no Python; 6 Helm failed; 7 the cluster cannot be used; 8 the run failed; 130
    interrupted, and the run continues.
    """
    from hvdchart.doctor.examine import check_before_install
    from hvdchart.values.check_values import checked_values

    source = planning.Script(script, arguments or (), script_run, code)
    chosen = options.chosen_settings(settings, fails_on_nan=fail_on_nan)
    script_plan = source.plan(chosen, {}, is_marked=True)
    plan = script_plan.plan
    planning.print_warnings(plan)
    if save_spec:
        script_plan.save(save_spec, code or script)
        print_remark(f"{save_spec} written: hvdchart deploy {save_spec} --code {code or script}")
    cluster, helm = install.connect()
    present = require_own_run(cluster, plan.spec.name, helm)
    current = present.status
    # Many scripts have the same name, and the existing run may belong to another user.
    if current.is_active and not script_run.name:
        raise ClusterError(
            f"run {current.name} in namespace {cluster.namespace} is {current.state}: --name "
            f"{current.name} replaces it, any other --name starts another run beside it"
        )
    if not install.force:
        check_before_install(cluster, checked_values(plan))
    install_and_follow(
        plan,
        cluster,
        helm,
        present,
        create_namespace=install.create_namespace,
        detach=follow.detach,
        wait=follow.wait,
    )

"""The command `run`: trains a script without a spec and without an image of its own."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.following import launch
from hvdchart.cli.terminal import note, say
from hvdchart.errors import ClusterError


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT...", help="Its arguments, after --.")
    ] = None,
    code: options.Code = None,
    workers: Annotated[
        int, typer.Option(min=1, max=options.MOST_WORKERS, metavar="N", help="Number of workers.")
    ] = 2,
    gpus: Annotated[
        int,
        typer.Option(min=0, max=64, metavar="N", help="GPUs of each worker, with a rank on each."),
    ] = 0,
    cpu: Annotated[
        str, typer.Option(metavar="CPUS", help="CPUs of each worker, such as 4 (default: 250m).")
    ] = "",
    memory: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Memory of each worker, such as 8Gi (default: 3Gi)."),
    ] = "",
    image: options.Image = "",
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Variable of the ranks; can be repeated."),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:/PATH]",
            help="A Secret, whose keys become variables, or files in /PATH; can be repeated.",
        ),
    ] = None,
    volume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            help="A volume, such as data=pvc:CLAIM:/data, output=pvc:CLAIM or "
            "data=hostPath:/mnt/data:/data:ro; can be repeated.",
        ),
    ] = None,
    settings: options.Settings = None,
    fail_on_nan: options.FailOnNan = False,
    save_spec: Annotated[
        Path | None,
        typer.Option(
            "--save-spec", metavar="FILE", help="Also write the run as a spec, for `deploy`."
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Name of the run, also to replace an active one (default: that of the script).",
        ),
    ] = "",
    namespace: options.Namespace = None,
    context: options.Context = None,
    helm: options.Helm = "helm",
    create_namespace: options.CreateNamespace = False,
    is_followed: options.Followed = True,
    wait: options.Wait = False,
    force: options.Force = False,
) -> None:
    """Run a script on a few workers, without a spec.

    The master copies the script to the workers, or with --code the folder that it is in. Without
    --image, the run uses a public image of the framework that the script imports.

    Examples:
      hvdchart run train.py
      hvdchart run train.py --workers 4 --cpu 8 --memory 16Gi -- --epochs 3
      hvdchart run train.py --gpus 1 --image registry.example/team/train:1
      hvdchart run train.py --volume data=pvc:scans:/data --env LEVEL=2 --secret wandb
      hvdchart run my-project/train.py --code my-project --detach

    Exit codes: 0 the run finished; 3, 4 an option has a wrong value; 5 the script cannot be read; 6
    Helm failed; 7 the cluster cannot be used; 8 the run failed; 130 interrupted, and the run
    continues.
    """
    from hvdchart.code.archive import pack_code
    from hvdchart.project.script import ScriptRun, plan_script, script_command, script_name
    from hvdchart.run.helm import Helm as Program

    command = script_command(script, code, arguments or ())
    is_alone = code is None or code.resolve() == script.resolve()
    if is_alone and script.with_name("requirements.txt").is_file():
        say(f"requirements.txt beside {script} is not used: add --code {script.parent}")
    chosen = ScriptRun(
        command,
        name or script_name(script),
        workers,
        gpus,
        image,
        cpu,
        memory,
        env or (),
        secret or (),
        volume or (),
        options.chosen_settings(settings, fails_on_nan=fail_on_nan),
    )
    made = plan_script(chosen, {"code": pack_code(code or script, say)}, is_marked=True)
    plan = made.plan
    planning.print_default_image(made.image)
    for warning in made.warnings:
        note(f"warning: {warning}")
    if save_spec:
        made.save(save_spec, code or script)
        say(f"{save_spec} written: hvdchart deploy {save_spec} --code {code or script}")
    cluster = options.connect(context, namespace)
    if not name:
        # Many scripts have the same name, and the present run may be of somebody else's.
        current = cluster.newest_run(plan.spec.name).status
        if current.is_active:
            raise ClusterError(
                f"run {current.name} in namespace {cluster.namespace} is {current.state}: --name "
                f"{current.name} replaces it, any other --name starts another run beside it"
            )
    if not force:
        planning.check_room(plan, cluster)
    launch(
        plan,
        cluster,
        Program(helm, context),
        create_namespace=create_namespace,
        is_followed=is_followed,
        wait=wait,
    )

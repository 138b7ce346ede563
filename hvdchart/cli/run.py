"""The command `run`: trains a script without a spec and without an image of its own."""

import re
from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli import options
from hvdchart.cli.deploy import launch
from hvdchart.cli.terminal import say
from hvdchart.errors import ClusterError, FileError


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT...", help="Its arguments, after --.")
    ] = None,
    code: options.Code = None,
    workers: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Number of workers.")
    ] = 2,
    gpus: Annotated[
        int,
        typer.Option(min=0, max=64, metavar="N", help="GPUs of each worker, with a rank on each."),
    ] = 0,
    image: Annotated[
        str,
        typer.Option(
            envvar="HVDCHART_IMAGE",
            metavar="IMAGE",
            help="Image of the pods (default: horovod-cpu, or horovod-cuda-next with --gpus).",
        ),
    ] = "",
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
) -> None:
    """Run a script on a few workers, without a spec.

    The master copies the script to the workers, or with --code the folder that it is in. Where the
    nodes, volumes or resources matter, write a spec (`hvdchart init`) and use `deploy`.

    Examples:
      hvdchart run train.py --image registry.example/team/horovod-cpu:0.28.1-tf2.21.0
      hvdchart run train.py --workers 4 --namespace team -- --epochs 3
      hvdchart run my-project/train.py --code my-project --detach

    Exit codes: 0 the run finished; 3, 4 no run can have that name or image; 5 the script cannot be
    read; 6 Helm failed; 7 the cluster cannot be used; 8 the run failed; 130 interrupted, and the
    run continues.
    """
    from dataclasses import replace

    from hvdchart.code.archive import pack_code
    from hvdchart.plan.planner import make_plan
    from hvdchart.project.templates import script_spec
    from hvdchart.run.helm import Helm as Program
    from hvdchart.run.status import run_status

    if not script.is_file():
        raise FileError(f"{script} is not a script: to run a folder, use hvdchart deploy")
    if code is None or code.resolve() == script.resolve():
        shown = script.name
        if script.with_name("requirements.txt").is_file():
            say(f"requirements.txt beside {script} is not used: add --code {script.parent}")
    elif script.resolve().is_relative_to(code.resolve()):
        shown = script.resolve().relative_to(code.resolve()).as_posix()
    else:
        raise typer.BadParameter(f"--code {code}: does not contain {script}")
    run_name = name or re.sub("[^a-z0-9]+", "-", script.stem.lower()).strip("-")
    command = ["python", shown, *(arguments or ())]
    spec = script_spec(command, run_name, image, workers=workers, gpus=gpus)
    plan = make_plan(replace(spec, values={"code": pack_code(code or script, say)}))
    if not image and plan.framework.name in ("torch", "jax"):
        why = plan.framework.reasons["framework"].because
        raise typer.BadParameter(f"{why}, which the default image lacks: name one with --image")
    options.print_warnings(plan)
    cluster = options.connect(context, namespace)
    if not name:
        # Many scripts have the same name, and the present run may be of somebody else's.
        current = run_status(cluster.release(plan.spec.name))
        if current.is_active:
            raise ClusterError(
                f"run {current.name} in namespace {cluster.namespace} is {current.state}: --name "
                f"{current.name} replaces it, any other --name starts another run beside it"
            )
    launch(
        plan,
        cluster,
        Program(helm, context),
        create_namespace=create_namespace,
        is_followed=is_followed,
        wait=wait,
    )

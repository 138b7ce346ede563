"""The commands `build` and `image check`, and the image that `deploy` builds first."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hvdchart.cli.options import Context, Namespace, split_words
from hvdchart.cli.terminal import say, show
from hvdchart.errors import HvdchartError, ImageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from hvdchart.plan.model import Plan
    from hvdchart.run.cluster import Cluster

Builder = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="docker, podman or buildah (default: the first found)."),
]
LoadWith = Annotated[
    str,
    typer.Option(
        envvar="HVDCHART_LOAD_WITH",
        metavar="COMMAND",
        help="Load the image into the cluster with this command, whose last argument it becomes.",
    ),
]


def build(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with a Dockerfile.")],
    image: Annotated[
        str, typer.Option(metavar="REPOSITORY", help="Name of the image, without a tag.")
    ],
    dockerfile: Annotated[
        str, typer.Option(metavar="FILE", help="The Dockerfile, relative to FOLDER.")
    ] = "Dockerfile",
    builder: Builder = None,
    push: Annotated[bool, typer.Option("--push", help="Push the image to its registry.")] = False,
    load_with: LoadWith = "",
    archive: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the image to an archive.")
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(metavar="SPEC", help="Write the image's name into this spec; keep comments."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Build again at each change, until interrupted.")
    ] = False,
) -> None:
    """Build an image, whose tag is a hash of the folder's content, and print its name.

    An image that exists already is not built again.

    Examples:
      hvdchart build . --image registry.example/team/resnet --push --spec run.spec.yaml
      hvdchart build . --image resnet --load-with "kind load docker-image" --watch

    Exit codes: 0 built; 5 there is no Dockerfile; 9 no builder works, or it failed; 130
    interrupted.
    """
    import json

    from hvdchart.image import build as building
    from hvdchart.image.deliver import Target, deliver, save
    from hvdchart.image.engines import choose_engine
    from hvdchart.project.edit import set_values

    source = building.Source(folder, image, dockerfile)
    target = Target(tuple(split_words("load-with", load_with)), push)
    engine = choose_engine(builder)

    def once() -> None:
        reference = building.build(source, engine, say)
        deliver(reference, target, engine, say)
        if archive is not None:
            save(reference, engine, archive)
        if spec is not None:
            repository, _, tag = reference.rpartition(":")
            pairs = {"image.repository": repository, "image.tag": tag}
            set_values(spec, [f"{path}={json.dumps(value)}" for path, value in pairs.items()])
        show(reference)

    if not watch:
        once()
        return
    from watchfiles import watch as changes

    for _ in chain([()], changes(folder, raise_interrupt=True)):
        try:
            once()
        except HvdchartError as error:
            # The next save may mend it.
            say(f"{error}; waiting for the next change")


def with_own_image(
    plan: "Plan",
    specs: list[Path],
    cluster: "Cluster",
    *,
    folder: Path | None = None,
    pushes: bool = True,
    is_preview: bool = False,
    builder: str | None,
    load_with: str,
    provided: "Collection[str]" = (),
) -> "Plan":
    """The plan with the image of a folder's Dockerfile, which is built and brought to the cluster.

    Without a folder: that of the first spec, if it has a Dockerfile and the plan's image neither a
    tag nor a digest. With `is_preview` nothing is built, nor for a tag that is `provided` already.
    """
    from dataclasses import replace

    from hvdchart.image.build import Source
    from hvdchart.image.deliver import Target, provide
    from hvdchart.plan.planner import make_plan
    from hvdchart.values.build import make_values
    from hvdchart.values.merge import merge_values

    image: Any = make_values(plan).get("image") or {}
    if not isinstance(image, dict):
        # Refused with the other values.
        return plan
    if folder is None:
        folder = specs[0].parent
        is_fixed = bool(image.get("tag") or image.get("digest")) or specs[0] == Path("-")
        if is_fixed or not (folder / "Dockerfile").is_file():
            return plan
    if image.get("digest"):
        raise ImageError("image.digest names another image than the one to build: remove it")
    if not image.get("repository"):
        raise ImageError("image.repository is missing: set it to the name of the image to build")
    source = Source(folder, str(image["repository"]))
    reference = source.reference()
    tag = reference.rpartition(":")[2]
    if is_preview:
        say(f"would build {reference}, unless it exists")
    elif tag not in provided:
        loader = tuple(split_words("load-with", load_with)) if pushes else ()
        target = Target(loader, pushes and not loader)
        provide(source, target, cluster.has_image, say, builder)
    values = merge_values(plan.spec.values, {"image": {"tag": tag}})
    return make_plan(replace(plan.spec, values=values), plan.tree)


def check(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="The image: repository:tag.")],
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="Launch mode: mpirun, horovodrun, elastic or direct (default: as in a spec).",
        ),
    ] = None,
    framework: Annotated[
        str, typer.Option(metavar="NAME", help="What the script uses: horovod, torch, jax or mpi.")
    ] = "horovod",
    with_ssh: Annotated[
        bool, typer.Option("--with-ssh", help="Runs have an image.ssh: OpenSSH may be missing.")
    ] = False,
    with_mpi: Annotated[
        bool, typer.Option("--with-mpi", help="The requirements.txt has an MPI: it may be missing.")
    ] = False,
    engine: Annotated[
        Literal["docker", "podman", "buildah"] | None,
        typer.Option(
            metavar="ENGINE", help="docker, podman or buildah (default: the first that works)."
        ),
    ] = None,
    in_cluster: Annotated[
        bool, typer.Option("--in-cluster", help="Run the check in a pod of the cluster.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Check whether an image meets the chart's requirements.

    Examples:
      hvdchart image check registry.example/team/train:1
      hvdchart image check registry.example/team/train:1 --mode horovodrun --in-cluster
      hvdchart image check registry.example/team/bert:1 --framework torch

    Exit codes: 0 the chart can use the image; 7 the cluster cannot be used; 9 the image cannot be
    run, or lacks something.
    """
    from hvdchart.image import check as checks
    from hvdchart.image.engines import run_in
    from hvdchart.image.probe import NEEDED
    from hvdchart.spec.model import FRAMEWORKS

    if framework not in FRAMEWORKS:
        names = ", ".join(FRAMEWORKS)
        raise typer.BadParameter(f"--framework {framework!r}: must be one of {names}")
    mode = mode or ("direct" if framework in NEEDED else "mpirun")
    if mode not in checks.MODES:
        raise typer.BadParameter(f"--mode {mode!r}: must be one of {', '.join(checks.MODES)}")
    if in_cluster:
        from hvdchart.run.cluster import Cluster

        output, errors = Cluster.connect(context, namespace).run_pod(checks.probe_pod(image)), ""
    else:
        done = run_in(image, checks.probe_command(), checks.UNKNOWN_USER, engine)
        output, errors = done.stdout, done.stderr
    brought = [name for name, given in (("ssh", with_ssh), ("mpi", with_mpi)) if given]
    findings = checks.check_requirements(
        checks.read_probe(image, output, errors), mode, framework, brought
    )
    show(*checks.check_report(image, findings))
    unmet = checks.missing(findings)
    if unmet:
        names = ", ".join(finding.requirement for finding in unmet)
        raise ImageError(f"{image} cannot be used with launch.mode {mode}; missing: {names}")

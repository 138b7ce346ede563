"""The command `build`, and the image that `deploy` builds first."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hvdchart.cli.options import Engine, LoadWith, split_words
from hvdchart.cli.terminal import print_lines, print_remark
from hvdchart.errors import FileError, HvdchartError, ImageError
from hvdchart.text import NEXT_CHANGE

if TYPE_CHECKING:
    from collections.abc import Collection

    from hvdchart.plan.model import Plan
    from hvdchart.run.kube.cluster import Cluster


def build(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with a Dockerfile.")],
    image: Annotated[
        str, typer.Option(metavar="REPOSITORY", help="Name of the image, without a tag.")
    ],
    dockerfile: Annotated[
        str, typer.Option(metavar="FILE", help="The Dockerfile, relative to FOLDER.")
    ] = "Dockerfile",
    engine: Engine = None,
    push: Annotated[bool, typer.Option("--push", help="Push the image to its registry.")] = False,
    load_with: LoadWith = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Build again at each change, until interrupted.")
    ] = False,
) -> None:
    """Build an image, whose tag is a hash of the folder's content, and print its name.

    An image that exists already is not built again.

    Examples:
      hvdchart build . --image registry.example/team/resnet --push
      hvdchart build . --image resnet --load-with "kind load docker-image" --watch

    Exit codes: 0 built; 5 there is no Dockerfile; 9 no engine works, or it failed; 130
    interrupted.
    """
    from hvdchart.image.build_image import Source, build_image
    from hvdchart.image.deliver import Target, deliver_image
    from hvdchart.image.engines import choose_engine

    source = Source(folder.absolute(), image, dockerfile)
    target = Target(tuple(split_words("load-with", load_with)), push)
    chosen_engine = choose_engine(engine)

    def build_once() -> None:
        reference = build_image(source, chosen_engine, print_remark)
        deliver_image(reference, target, chosen_engine, print_remark)
        print_lines(reference)

    if not watch:
        build_once()
        return
    from hvdchart.code.changes import watch_versions

    for version in watch_versions(source.folder, source.digest):
        try:
            if isinstance(version, FileError):
                raise version
            build_once()
        except HvdchartError as error:
            # The next save may fix the error.
            print_remark(f"{error}; {NEXT_CHANGE}")


def use_built_image(
    plan: "Plan",
    specs: list[Path],
    cluster: "Cluster",
    *,
    pushes: bool = True,
    is_preview: bool = False,
    engine: str | None,
    load_with: str,
    provided: "Collection[str]" = (),
) -> "Plan":
    """Return the plan with the project's image, after it is built and delivered to the cluster.

    The project is the folder of the first spec. Its image is built if the folder has a Dockerfile,
    and the plan's image has neither a tag nor a digest. Otherwise the plan is returned unchanged.
    With `is_preview`, or for a tag that is `provided` already, nothing is built. `pushes` says
    whether the image leaves this machine. `load_with` is the command that loads it instead of a
    push. Raises ImageError when the image has no name, and when building or delivering it fails,
    and FileError when a file of the folder cannot be read.
    """
    from dataclasses import replace

    from hvdchart.image.build_image import Source
    from hvdchart.image.deliver import Target, provide_image
    from hvdchart.plan.planner import make_plan
    from hvdchart.values.from_plan import make_values
    from hvdchart.values.merge import merge_values

    image: Any = make_values(plan).get("image") or {}
    if not isinstance(image, dict):
        # The check of the values refuses it.
        return plan
    folder = specs[0].parent
    is_fixed = bool(image.get("tag") or image.get("digest"))
    has_folder = specs[0] != Path("-")
    if is_fixed or not has_folder or not (folder / "Dockerfile").is_file():
        return plan
    if not image.get("repository"):
        raise ImageError("`image.repository` is missing: set it to the name of the image to build")
    source = Source(folder, str(image["repository"]))
    reference = source.reference()
    tag = reference.rpartition(":")[2]
    if is_preview:
        print_remark(f"would build {reference}, unless it exists")
    elif tag not in provided:
        loader = tuple(split_words("load-with", load_with)) if pushes else ()
        target = Target(loader, pushes and not loader)
        provide_image(source, target, cluster.has_image, print_remark, engine)
    values = merge_values(plan.spec.values, {"image": {"tag": tag}})
    return make_plan(replace(plan.spec, values=values), plan.tree)

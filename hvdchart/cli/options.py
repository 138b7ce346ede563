"""Options and arguments that several subcommands share."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hvdchart.cli.terminal import note, say, write_document
from hvdchart.project import SPEC_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from hvdchart.plan.model import Plan
    from hvdchart.project.default_images import DefaultImage
    from hvdchart.run.cluster import Cluster
    from hvdchart.spec.yaml_tree import Plain

# Seconds of each unit of a duration.
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Columns of a table, or of a document, that no terminal shows: no line is wrapped.
_UNLIMITED = 10_000
Specs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="SPEC...",
        help=f"Spec files, merged in order; FOLDER: its {SPEC_NAME}; - reads standard input.",
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Merge another spec file after SPEC; can be repeated."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Set a key of the merged spec, e.g. nodes.0.count=8; can be repeated.",
    ),
]
FailOnNan = Annotated[
    bool,
    typer.Option(
        "--fail-on-nan",
        help="End an attempt whose loss is NaN, and the run the second time in a row.",
    ),
]
ValuesFiles = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Merge a file of the chart's values last; can be repeated."),
]
Code = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Script or folder that the master copies to the workers, without the files that "
        ".gitignore and .hvdignore name, and without those that hold secrets, such as .env.",
    ),
]
Image = Annotated[
    str,
    typer.Option(
        envvar="HVDCHART_IMAGE",
        metavar="IMAGE",
        help="Image of the pods (default: a public one of the framework that the script imports).",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--write", "-w", metavar="FILE", help="Write to this file (default: standard output)."
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAMESPACE",
        help="Kubernetes namespace (default: the namespace of the context).",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(metavar="CONTEXT", help="Context of the kubeconfig (default: current context)."),
]
Model = Annotated[
    # The networks of examples/benchmark.py.
    Literal["resnet50", "inception3", "vgg16", "mobilenet2", "bert", "lstm"],
    typer.Option(
        metavar="NAME",
        case_sensitive=False,
        help="One of resnet50, inception3, vgg16, mobilenet2, bert, lstm.",
    ),
]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """The names of the runs that the Tab key offers; none where the cluster cannot be asked."""
    from hvdchart.errors import HvdchartError

    given = context.params
    try:
        cluster = connect(given.get("context"), given.get("namespace"))
        names = [run.release.name for _, run in cluster.newest_runs()]
    except HvdchartError:
        return []
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the run, which is its Helm release.",
        autocompletion=_complete_name,
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="Names of the runs, which are their Helm releases.",
        autocompletion=_complete_name,
    ),
]
CreateNamespace = Annotated[
    bool, typer.Option("--create-namespace", help="Create the namespace if it does not exist.")
]
Format = Annotated[
    Literal["text", "json", "yaml"],
    typer.Option("--output", "-o", metavar="FORMAT", help="Output format: text, json or yaml."),
]
Helm = Annotated[
    str, typer.Option(metavar="PROGRAM", help="Helm program, a name on PATH or a path.")
]
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
Force = Annotated[
    bool,
    typer.Option("--force", help="Install what the present nodes cannot run: they will grow."),
]
Followed = Annotated[
    bool,
    typer.Option(
        "--follow/--detach", help="Print phases and logs until the run ends, or return at once."
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Print phases and progress until the run ends, no logs.")
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="RANK|POD", help="Number of a rank, or worker-N, or master, or the name of a pod."
    ),
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="COMMAND...", help="Command (default: a shell).")
]


def connect(context: str | None, namespace: str | None = None) -> Cluster:
    """The cluster of --context and --namespace. Raises ClusterError when it cannot be used."""
    from hvdchart.run.cluster import Cluster

    return Cluster.connect(context, namespace)


def parse_duration(text: str | None) -> int | None:
    """The seconds of a duration such as 90s, 5m, 2h or 1d; a number alone is seconds.

    None for an option that was not given. Raises typer.BadParameter for any other text.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if not match:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90s, 5m, 2h or 1d")
    return int(match[1]) * _UNITS[match[2] or "s"]


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """The numbers of an option such as 1,2,4; none for an empty text.

    Raises typer.BadParameter for any other text, and for numbers of more than six digits.
    """
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() and len(word) < 7 for word in words):
        raise typer.BadParameter(f"--{option} {text!r}: must be whole numbers, separated by commas")
    return tuple(int(word) for word in words)


def chosen_settings(settings: list[str] | None, *, fails_on_nan: bool) -> list[str]:
    """The settings of --set, after those that options of their own make."""
    from hvdchart.spec.run_options import FAIL_ON_NAN

    own = [f"{FAIL_ON_NAN}=true"] if fails_on_nan else []
    return own + (settings or [])


def split_words(option: str, text: str) -> list[str]:
    """The words of an option that is a command line.

    Raises typer.BadParameter for a quotation mark that is not closed.
    """
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{option} {text!r}: {str(error).lower()}") from error


def read_values(files: list[Path] | None, code: Path | None) -> Mapping[str, Plain] | None:
    """The chart's values in the files of --values, and those of --code, merged in order.

    None if there are none. Raises FileError for what cannot be read, SpecError for what is not
    YAML, and typer.BadParameter for a file that is not a map.
    """
    from hvdchart.spec.load import load_tree
    from hvdchart.values.merge import merge_values

    merged: dict[str, Plain] = {}
    for file in files or ():
        values = load_tree(file).plain
        if not isinstance(values, dict):
            raise typer.BadParameter(f"--values {file}: must be a map of the chart's values")
        merged = merge_values(merged, values)
    if code is not None:
        from hvdchart.code.archive import pack_code

        merged = merge_values(merged, {"code": pack_code(code, say)})
    return merged or None


def spec_files(
    specs: list[Path] | None, files: list[Path] | None, code: Path | None = None
) -> list[Path]:
    """The spec files in order: SPEC first, then those of --file.

    A folder stands for the spec in it. Without any of them, the spec is that of the folder that
    --code names or is in; empty without --code, too.
    """
    named = [*(specs or ()), *(files or ())]
    if not named and code is not None:
        named = [code if code.is_dir() else code.parent]
    return [path / SPEC_NAME if path.is_dir() else path for path in named]


def plan_specs(
    specs: list[Path] | None,
    files: list[Path] | None,
    settings: list[str] | None,
    values: Mapping[str, Plain] | None = None,
    code: Path | None = None,
    report: Callable[[str], object] = note,
) -> tuple[list[Path], Plan]:
    """The spec files in order, and the plan of what they, the settings and `values` merge to.

    A script in the place of a spec gets the spec that `hvdchart run` makes for it. Its code is in
    `values`, or else read, and `report` gets its image. Raises FileError and SpecError, and
    typer.BadParameter when no spec is named.
    """
    from hvdchart.plan.planner import plan_tree
    from hvdchart.spec.load import load_specs

    paths = spec_files(specs, files, code)
    if not paths:
        raise typer.BadParameter("no spec: name a file, or a folder with one")
    if is_script(paths):
        return paths, _plan_script(paths[0], settings, values or {}, code, report)
    return paths, plan_tree(load_specs(paths, settings or (), values))


def is_script(paths: Sequence[Path]) -> bool:
    """Whether a script was named in the place of a spec."""
    return [path.suffix for path in paths] == [".py"]


def _plan_script(
    script: Path,
    settings: list[str] | None,
    values: Mapping[str, Plain],
    code: Path | None,
    report: Callable[[str], object],
) -> Plan:
    """The plan of a script, with the image of HVDCHART_IMAGE or a public one."""
    from hvdchart.code.archive import pack_code
    from hvdchart.project.script import ScriptRun, plan_script, script_command, script_name

    command = script_command(script, code)
    if "code" not in values:
        values = {**values, "code": pack_code(code or script, say)}
    image = os.environ.get("HVDCHART_IMAGE", "")
    run = ScriptRun(command, script_name(script), image=image, settings=settings or ())
    made = plan_script(run, values)
    print_default_image(made.image, report)
    return made.plan


def print_default_image(image: DefaultImage | None, report: Callable[[str], object] = note) -> None:
    """Say which public image a script gets, and why; nothing where the user has named one."""
    if image:
        remark = f"; {image.remark}" if image.remark else ""
        other = "another one: `run --image`, or HVDCHART_IMAGE"
        report(f"image {image.reference}, because {image.why} ({other}){remark}")


def plan_project(
    specs: list[Path] | None,
    files: list[Path] | None,
    settings: list[str] | None,
    code: Path | None,
    values: list[Path] | None = None,
) -> tuple[list[Path], Plan]:
    """As `plan_specs`, with the files of --values and the code.

    The code is that of --code, or of the first folder among the specs; without either, there is
    none.
    """
    if code is None:
        named = [*(specs or ()), *(files or ())]
        code = next((path for path in named if path.is_dir()), None)
    return plan_specs(specs, files, settings, read_values(values, code), code)


def check_room(plan: Plan, cluster: Cluster) -> None:
    """Raise ClusterError for a run that the cluster's nodes could never run, however long it waits.

    Raises SpecError and ValuesError for values that the chart refuses.
    """
    from hvdchart.doctor.examine import check_room as check
    from hvdchart.values.check import checked_values
    from hvdchart.values.merge import merge_values
    from hvdchart.values.schema import default_values

    check(cluster, merge_values(default_values(), checked_values(plan)))


def print_warnings(plan: Plan) -> None:
    """Write the plan's warnings to standard error."""
    for warning in plan.warnings:
        note(f"warning: {warning}")


def print_document(document: object, output: str) -> None:
    """Print a document to standard output as json or yaml; several ones are a stream of yaml."""
    import json

    text = json.dumps(document, indent=2)
    if output == "yaml":
        import yaml

        # Through JSON, so that nothing that occurs twice is written as an alias.
        plain = json.loads(text)
        dumped = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=_UNLIMITED)
        text = f"---\n{dumped}"
    write_document(text.rstrip("\n") + "\n")


def write_output(output: Path | None, text: str) -> None:
    """Write to the file of --write, or to standard output without it.

    Raises FileError when the file cannot be written.
    """
    from hvdchart.files import write_atomically

    if output is None:
        write_document(text)
    else:
        write_atomically(output, text)


def console(*, stderr: bool = False) -> Console:
    """Where to print tables: as wide as the terminal, and without wrapping in a pipe or file."""
    from rich.console import Console

    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=_UNLIMITED)

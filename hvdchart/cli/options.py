"""Options and arguments that several subcommands share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hvdchart.spec import SPEC_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hvdchart.run.helm import Helm
    from hvdchart.run.kube.cluster import Cluster

# A label of DNS.
_NAMESPACE = r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?"
# Seconds of each unit of a duration.
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RunSources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROJECT|SPEC...|SCRIPT",
        help=f"Folder with {SPEC_NAME}, or spec files, merged in order; - reads standard input; "
        "or a script, whose arguments follow after --.",
    ),
]
Specs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="SPEC...",
        help=f"Spec files, merged in order; a folder stands for its {SPEC_NAME}, and - for "
        "standard input.",
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
Code = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Script or folder that the master copies to the workers, without the files that "
        ".gitignore and .hvdignore name, and without those that hold secrets, such as .env.",
    ),
]


def _file_to_write(path: Path | None) -> Path | None:
    """Return the file of --write; None for standard output."""
    return None if path == Path("-") else path


Output = Annotated[
    Path | None,
    typer.Option(
        "--write",
        "-w",
        metavar="FILE",
        callback=_file_to_write,
        help="Write to this file (default: -, standard output).",
    ),
]


def keep_inputs(written: Iterable[Path | None], read: Iterable[Path]) -> None:
    """Raise typer.BadParameter for a file to write that the command reads: it would be lost."""
    for file, path in product(filter(None, written), read):
        if file.is_file() and path.is_file() and file.samefile(path):
            raise typer.BadParameter(f"the command reads {file}: choose another file to write")


def check_namespace(namespace: str | None) -> str | None:
    """Return the value of --namespace. Raises typer.BadParameter for an invalid name."""
    if namespace and not re.fullmatch(_NAMESPACE, namespace):
        raise typer.BadParameter(
            f"got {namespace!r}; expected a name of a-z, 0-9 and -, which begins and ends with a "
            "letter or digit, of at most 63 characters"
        )
    return namespace


Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        callback=check_namespace,
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
    """Return the names of the runs for Tab completion; none where the cluster cannot be reached."""
    from hvdchart.errors import HvdchartError
    from hvdchart.run.kube.runs import newest_runs

    options = context.params
    try:
        cluster = connect_to_cluster(options.get("context"), options.get("namespace"))
        names = [run.release.name for _, run in newest_runs(cluster)]
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
MaybeName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Name of the run (default: the only run of the namespace that has not ended).",
        autocompletion=_complete_name,
        show_default=False,
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
HelmProgram = Annotated[
    str, typer.Option("--helm", metavar="PROGRAM", help="Helm program, a name on PATH or a path.")
]
Engine = Annotated[
    Literal["docker", "podman", "buildah"] | None,
    typer.Option(
        metavar="ENGINE", help="docker, podman or buildah (default: the first that works)."
    ),
]
LoadWith = Annotated[
    str,
    typer.Option(
        envvar="HVDCHART_LOAD_WITH",
        metavar="COMMAND",
        help="Load the image into the cluster with this command; the image is its last argument.",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Also install what lacks nodes or Secrets, and so cannot start yet."
    ),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Return when the run is installed; print no logs.")
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Print phases and progress instead of logs until the run ends."),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="RANK|POD", help="Number of a rank, worker-N, master, or the name of a pod."
    ),
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="COMMAND...", help="Command (default: a shell).")
]


def connect_to_cluster(context: str | None, namespace: str | None = None) -> Cluster:
    """Return the cluster of --context and --namespace.

    Raises ClusterError if it cannot be used.
    """
    from hvdchart.run.kube.cluster import Cluster

    return Cluster.connect(context, namespace)


def connect_with_helm(
    context: str | None, namespace: str | None, program: str
) -> tuple[Cluster, Helm]:
    """Return the cluster and Helm; look for Helm's program first.

    Raises HelmError without the program, and ClusterError when the cluster cannot be used.
    """
    from hvdchart.run.helm import Helm

    helm = Helm(program, context)
    helm.check_found()
    return connect_to_cluster(context, namespace), helm


@dataclass(frozen=True)
class HelmOptions:
    """The options of each command that needs the cluster and Helm."""

    namespace: Namespace = None
    context: Context = None
    helm_program: HelmProgram = "helm"

    def connect(self) -> tuple[Cluster, Helm]:
        """Connect as `connect_with_helm` does."""
        return connect_with_helm(self.context, self.namespace, self.helm_program)


@dataclass(frozen=True)
class InstallOptions(HelmOptions):
    """The options of each command that installs a run."""

    create_namespace: CreateNamespace = False
    force: Force = False


@dataclass(frozen=True)
class FollowOptions:
    """The options to follow the installed run. Raises BadParameter for conflicting options."""

    detach: Detach = False
    wait: Wait = False

    def __post_init__(self) -> None:
        if self.detach and self.wait:
            raise typer.BadParameter(
                "--detach and --wait exclude each other: --detach returns at once, and --wait "
                "when the run has ended"
            )


def connect_to_run(
    name: str | None, context: str | None, namespace: str | None
) -> tuple[Cluster, str]:
    """Return the cluster, and the name of the run: the given one, or else the only one there is.

    Raises ClusterError where the cluster cannot be used, or has no run or several candidates.
    """
    from hvdchart.run.kube.runs import only_run

    cluster = connect_to_cluster(context, namespace)
    return cluster, name if name is not None else only_run(cluster)


def parse_duration(text: str | None) -> int | None:
    """Return the seconds of a duration such as 90s, 5m, 2h or 1d; a number alone is seconds.

    None for an option that was not given. Raises typer.BadParameter for any other text.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if not match:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90s, 5m, 2h or 1d")
    return int(match[1]) * _UNITS[match[2] or "s"]


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of an option such as 1,2,4; none for an empty text.

    Raises typer.BadParameter for any other text, and for numbers of more than six digits.
    """
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() and len(word) < 7 for word in words):
        raise typer.BadParameter(f"--{option} {text!r}: must be whole numbers, separated by commas")
    return tuple(int(word) for word in words)


def chosen_settings(settings: list[str] | None, *, fails_on_nan: bool) -> list[str]:
    """Return the settings of --set, after the settings of other options."""
    from hvdchart.script.options import FAIL_ON_NAN

    shortcuts = [f"{FAIL_ON_NAN}=true"] if fails_on_nan else []
    return shortcuts + (settings or [])


def split_words(option: str, text: str) -> list[str]:
    """Return the words of an option that is a command line.

    Raises typer.BadParameter for a quotation mark that is not closed.
    """
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{option} {text!r}: {str(error).lower()}") from error

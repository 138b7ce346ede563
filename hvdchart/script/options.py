"""The options of a script, which each command that takes a script has, and `hvdchart.launch`.

The fields of `ScriptRun` are these options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

# The value of the annotation `contract.COMMAND` in the runs of `hvdchart run`.
RUN_COMMAND = "run"
# The key that --fail-on-nan sets, also for commands that have a spec.
FAIL_ON_NAN = "values.launch.failOnNaN"
# The value of resources.json. It is repeated because --help must work in a broken installation,
# too.
MAX_WORKERS = 10_000
# The number of workers of a script without --workers.
DEFAULT_WORKERS = 2


@dataclass(frozen=True)
class RunOption:
    """An option, its argument of `launch`, the keys of the spec that it sets, and other names.

    The other names are values of the chart, and names that the option replaces in a run of a
    script. `shown` is how the command shows and checks an option of a script: the arguments of
    `typer.Option`.
    """

    option: str
    argument: str
    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    shown: Mapping[str, Any] = field(default_factory=dict)


def _script_option(
    option: str, keys: Sequence[str], names: Sequence[str] = (), **shown: Any
) -> Any:
    """Return the field of an option of a script: see `RunOption`."""
    metadata = {"option": option, "keys": tuple(keys), "names": tuple(names), "shown": shown}
    return field(default=None, metadata=metadata)


@dataclass(frozen=True)
class ScriptRun:
    """A run of a script, and its options as they were typed; None and empty ones were not given."""

    command: Sequence[str] = ()
    settings: Sequence[str] = ()
    workers: int | None = _script_option(
        "--workers",
        ["nodes.0.count"],
        ["worker.number"],
        min=1,
        max=MAX_WORKERS,
        metavar="N",
        help=f"Number of workers (default: {DEFAULT_WORKERS}).",
    )
    gpus: int | None = _script_option(
        "--gpus",
        ["nodes.0.gpus"],
        ["worker.slots", "nodes[].tuning.slots"],
        min=0,
        max=64,
        metavar="N",
        help="GPUs of each worker, with a rank on each (default: none).",
    )
    cpu: str | None = _script_option(
        "--cpu",
        ["nodes.0.coresPerSocket", "nodes.0.tuning.cpu"],
        ["worker.resources.requests.cpu", "worker.resources.limits.cpu"],
        metavar="CPUS",
        help="CPUs of each worker, such as 4 (default: 250m; with --gpus, no request).",
    )
    memory: str | None = _script_option(
        "--memory",
        ["nodes.0.memory", "nodes.0.tuning.memory"],
        [
            "worker.resources",
            "worker.resources.requests.memory",
            "worker.resources.limits.memory",
        ],
        metavar="SIZE",
        help="Memory of each worker, such as 8Gi (default: 3Gi; with --gpus, no request).",
    )
    image: str | None = _script_option(
        "--image",
        ["image"],
        ["image.repository", "image.tag"],
        envvar="HVDCHART_IMAGE",
        metavar="IMAGE",
        help="Image of the pods (default: a public one of the framework that the script imports).",
    )
    env: list[str] | None = _script_option(
        "--env",
        ["train.env"],
        ["worker.env"],
        metavar="NAME=VALUE",
        help="Variable of the ranks; can be repeated.",
    )
    secrets: list[str] | None = _script_option(
        "--secret",
        ["values.worker.envFrom"],
        metavar="NAME[:/PATH]",
        help="A Secret, whose keys become variables, or files in /PATH; can be repeated.",
    )
    volumes: list[str] | None = _script_option(
        "--volume",
        ["volumes"],
        metavar="NAME=SOURCE",
        help="A volume, such as data=pvc:CLAIM:/data:ro, output=pvc:CLAIM "
        "or cache=hostPath:/mnt/cache:/cache; can be repeated.",
    )
    name: str | None = _script_option(
        "--name",
        ["name"],
        metavar="NAME",
        help="Name of the run, also to replace an active one (default: that of the script).",
    )


# The options of a script by their fields in `ScriptRun`.
SCRIPT_OPTIONS = {
    option.name: RunOption(argument=f"{option.name}=", **option.metadata)
    for option in fields(ScriptRun)
    if option.metadata
}
RUN_OPTIONS = (
    *SCRIPT_OPTIONS.values(),
    RunOption("--code", "code=", ("values.code.files", "values.code.archive")),
    RunOption(
        "--fail-on-nan",
        f'settings=["{FAIL_ON_NAN}=true"]',
        (FAIL_ON_NAN,),
        ("launch.failOnNaN=true",),
    ),
    RunOption("--set", "settings="),
    RunOption("--namespace", "namespace="),
    RunOption("--context", "context="),
    RunOption("--helm", "helm="),
    RunOption("--force", "force=True"),
    RunOption("--create-namespace", "kubectl create namespace"),
)

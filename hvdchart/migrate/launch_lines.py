"""Parses the lines of srun, torchrun, accelerate and deepspeed. Pure.

The ranks of these launchers meet by variables that the chart sets in each mode, so that the master
can start them itself. An option that is in no table here is refused by its name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from hvdchart.migrate import slurm
from hvdchart.migrate.command_line import LAUNCHERS, CommandLine, parse_line, unwrap_shell
from hvdchart.migrate.parser import NotUnderstoodError, Parser, count
from hvdchart.migrate.shell_words import Word

_MEETING = "the chart sets where ranks meet"
_SIZE = "the chart takes it from worker.number and worker.slots"
_PYTHON = ("-m", "--module"), ("--no-python", "--no_python")


@dataclass(frozen=True)
class _Options:
    """The options of a launcher: those with a value, and flags, each with why it is dropped."""

    values: Mapping[str, str]
    flags: Mapping[str, str]


_TORCHRUN = _Options(
    {
        **dict.fromkeys(
            (
                "--rdzv-backend",
                "--rdzv-endpoint",
                "--rdzv-id",
                "--rdzv-conf",
                "--node-rank",
                "--master-addr",
                "--master-port",
                "--local-addr",
            ),
            _MEETING,
        ),
        "--max-restarts": "master.backoffLimit sets the number of retries",
        "--monitor-interval": "the master watches the ranks itself",
        "--start-method": "the chart starts the ranks itself",
        "--role": "all ranks have one role",
        "--log-dir": "kubectl logs shows what the ranks print",
        "--redirects": "kubectl logs shows what the ranks print",
        "--tee": "kubectl logs shows what the ranks print",
    },
    {"--standalone": _MEETING},
)
_ACCELERATE = _Options(
    {
        **dict.fromkeys(
            ("--machine_rank", "--main_process_ip", "--main_process_port", "--rdzv_backend"),
            _MEETING,
        ),
        "--num_cpu_threads_per_process": "worker.env sets OMP_NUM_THREADS",
        "--gpu_ids": "each rank has the GPU of its number on its node",
    },
    {
        "--multi_gpu": "the number of ranks says so",
        "--same_network": _MEETING,
    },
)
_DEEPSPEED = _Options(
    {
        **dict.fromkeys(("--master_addr", "--master_port", "--node_rank"), _MEETING),
        "--hostfile": "the chart makes the workers",
        "--launcher": "the master starts the ranks itself",
        "--launcher_args": "the master starts the ranks itself",
    },
    {
        "--force_multi": "the number of workers says so",
        "--no_ssh": "the chart uses no SSH",
    },
)


def parse_torchrun(words: Sequence[Word], nodes: int = 1, each: int = 1) -> CommandLine:
    """The line of torchrun, which starts `each` ranks on so many nodes where it does not say it.

    Raises NotUnderstoodError.
    """
    given, line = _parse("torchrun", _TORCHRUN, words, ("--nproc-per-node",), "--nnodes")
    # MINIMUM:MAXIMUM, or one number.
    least, _, most = (given.nnodes or str(nodes)).rpartition(":")
    try:
        line.minimum = count(least) if least else None
        nodes = count(most)
    except argparse.ArgumentTypeError as error:
        raise NotUnderstoodError(f"torchrun: --nnodes: {error}") from None
    if line.minimum:
        if line.minimum > nodes:
            raise NotUnderstoodError(f"torchrun: --nnodes: {least} is more than {most}")
        line.least.append(f"--nnodes {given.nnodes}")
    elif given.nnodes:
        line.parts.insert(0, (f"--nnodes {given.nnodes}", "", _SIZE))
    _set_size(line, nodes, given.nproc_per_node or each)
    return line


def parse_accelerate(words: Sequence[Word]) -> CommandLine:
    """The line of accelerate, with `launch` as its first word. Raises NotUnderstoodError."""
    if not words or words[0].text != "launch":
        raise NotUnderstoodError("accelerate starts a training as accelerate launch")
    sizes = ("--num_machines", "--num_processes")
    given, line = _parse("accelerate launch", _ACCELERATE, words[1:], sizes, "--mixed_precision")
    if not given.num_processes:
        raise NotUnderstoodError(
            "accelerate launch: the line has no --num_processes, the number of all ranks"
        )
    machines = given.num_machines or 1
    if given.num_processes % machines:
        raise NotUnderstoodError(
            f"accelerate launch: {given.num_processes} processes on {machines} machines: each "
            "needs as many"
        )
    _set_size(line, machines, given.num_processes // machines)
    if given.mixed_precision:
        variable = "ACCELERATE_MIXED_PRECISION"
        line.exports.append(("--mixed_precision", variable, given.mixed_precision))
    return line


def parse_deepspeed(words: Sequence[Word]) -> CommandLine:
    """The line of deepspeed. Raises NotUnderstoodError."""
    sizes = ("--num_nodes", "--num_gpus")
    given, line = _parse("deepspeed", _DEEPSPEED, words, sizes, flag="--no_local_rank")
    if not given.num_gpus:
        raise NotUnderstoodError(
            "deepspeed: the line has no --num_gpus, the number of ranks on each node"
        )
    _set_size(line, given.num_nodes or 1, given.num_gpus)
    if not given.no_local_rank:
        line.checks.append(
            "deepspeed gave the script --local_rank: here the script reads the variable LOCAL_RANK"
        )
    return line


def _parse(
    program: str,
    options: _Options,
    words: Sequence[Word],
    sizes: Sequence[str],
    value: str = "",
    flag: str = "",
) -> tuple[argparse.Namespace, CommandLine]:
    """What a launcher of Python scripts is given, and its line with the command of the ranks.

    `sizes` are the options with numbers of nodes and ranks; `value` and `flag` are options that
    the caller reads. Underscores in names are as good as dashes. Raises NotUnderstoodError.
    """
    parser = Parser(program)
    for name in sizes:
        parser.add_argument(*_spellings(name), type=count)
    for name in (*options.values, *filter(None, (value,))):
        parser.add_argument(*_spellings(name))
    for name in (*options.flags, *filter(None, (flag,))):
        parser.add_argument(*_spellings(name), action="store_true")
    for names in _PYTHON:
        parser.add_argument(*names, action="store_true")
    given, command = _parse_command(parser, words)
    if not given.no_python:
        command = ["python3", *(["-m"] if given.module else []), *command]
    line = CommandLine("direct", program, framework="torch", command=command)
    reasons = {**dict.fromkeys(sizes, _SIZE), **options.values, **options.flags}
    _add_parts(line, given, reasons)
    if flag and getattr(given, _attribute(flag)):
        line.parts.append((flag, "", "the chart passes the script no such option"))
    return given, line


def parse_srun(words: Sequence[Word], size: slurm.Size) -> CommandLine:
    """The line of srun, in a script of this size. Raises NotUnderstoodError."""
    parser = Parser("srun")
    slurm.add_size_options(parser)
    for names in _SRUN_VALUES:
        parser.add_argument(*names)
    for names in _SRUN_FLAGS:
        parser.add_argument(*names, action="store_true")
    given, command = _parse_command(parser, words)
    program = PurePosixPath(command[0]).name
    if program in STARTERS:
        raise NotUnderstoodError(
            f"srun starts {program}: write the line of {program} alone, with all nodes and ranks"
        )
    line = CommandLine("mpirun", "srun", command=command)
    line.ranks = given.ntasks
    line.per_host = given.ntasks_per_node
    nodes = given.nodes or size.nodes
    if given.nodes and line.per_host and not line.ranks:
        line.ranks = given.nodes * line.per_host
    elif line.ranks and nodes and not line.per_host:
        if line.ranks % nodes:
            raise NotUnderstoodError(
                f"srun: {line.ranks} tasks on {nodes} nodes: each needs as many"
            )
        line.per_host = line.ranks // nodes
    elif given.nodes and not line.ranks:
        each = size.tasks_per_node or 1
        line.ranks = given.nodes * each
        line.per_host = each
    others = [names[-1] for names in (*slurm.WITH_VALUE, *_SRUN_VALUES, *_SRUN_FLAGS)]
    reasons = dict.fromkeys(others, "an option for Slurm")
    sizes = dict.fromkeys(("--nodes", "--ntasks", "--ntasks-per-node"), _SIZE)
    _add_parts(line, given, {**reasons, **sizes})
    line.checks.append(
        "the ranks of srun start with mpirun: set launch.mode to direct for an image without MPI"
    )
    return line


_SRUN_VALUES: tuple[tuple[str, ...], ...] = (
    ("--mpi",),
    ("--container-image",),
    ("--container-mounts",),
    ("--container-name",),
    ("--container-workdir",),
    ("--jobid",),
    ("--threads-per-core",),
)
_SRUN_FLAGS: tuple[tuple[str, ...], ...] = (
    ("-K", "--kill-on-bad-exit"),
    ("-l", "--label"),
    ("-u", "--unbuffered"),
    ("-v", "--verbose"),
    ("--exclusive",),
    ("--exact",),
    ("--overlap",),
    ("--no-container-mount-home",),
)


def _spellings(name: str) -> list[str]:
    """An option with dashes and with underscores in its name."""
    body = name.removeprefix("--")
    return list(dict.fromkeys((name, f"--{body.replace('-', '_')}", f"--{body.replace('_', '-')}")))


def _attribute(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _add_parts(line: CommandLine, given: argparse.Namespace, reasons: Mapping[str, str]) -> None:
    for name, reason in reasons.items():
        value = getattr(given, _attribute(name))
        if value not in (None, False):
            line.parts.append((name if value is True else f"{name} {value}", "", reason))


def _set_size(line: CommandLine, nodes: int, each: int) -> None:
    line.ranks = nodes * each
    line.per_host = each


def _parse_command(parser: Parser, words: Sequence[Word]) -> tuple[argparse.Namespace, list[str]]:
    """What a launcher is given, and the command behind its options. Raises NotUnderstoodError."""
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args([word.text for word in words])
    command = [given.program, *given.arguments]
    rest = words[len(words) - len(command) :]
    if unknown := next((word.unknown for word in rest if word.unknown), ""):
        raise NotUnderstoodError(f"only a shell knows {unknown}")
    return given, command


_PYTHONS: Mapping[str, Callable[[Sequence[Word]], CommandLine]] = {
    "torchrun": parse_torchrun,
    "accelerate": parse_accelerate,
    "deepspeed": parse_deepspeed,
}
STARTERS = (*LAUNCHERS, "srun", *_PYTHONS)
_TORCH_RUN = "torch.distributed.run"
_TORCH_LAUNCH = "torch.distributed.launch"


def parse_launch(words: Sequence[Word], size: slurm.Size) -> CommandLine:
    """The line of any launcher, in a script of this size for Slurm. Raises NotUnderstoodError."""
    program = PurePosixPath(words[0].text).name
    if program == "srun":
        return parse_srun(words[1:], size)
    if program in _PYTHONS:
        return _PYTHONS[program](words[1:])
    return parse_line(words)


def parse_container(
    texts: Sequence[str], nodes: int, each: int, known: Mapping[str, str]
) -> CommandLine:
    """The command of pods that all run the same: a launcher's line, or one rank on each.

    `known` are the variables that a shell would know. Raises NotUnderstoodError.
    """
    words = [Word(text) for text in texts]
    named = {PurePosixPath(part).name for text in texts for part in text.split()}
    if named.intersection((*STARTERS, _TORCH_RUN, _TORCH_LAUNCH)):
        before, inner = unwrap_shell(words, known)
        line = _parse_start(inner, nodes, each)
        if line:
            line.parts += before
            return line
    return CommandLine("direct", texts[0], framework="torch", command=list(texts))


def _parse_start(words: Sequence[Word], nodes: int, each: int) -> CommandLine | None:
    """The line of a launcher; None for another program. Raises NotUnderstoodError."""
    program, *rest = [word.text for word in words]
    name = PurePosixPath(program).name
    if name.startswith("python") and rest[:1] == ["-m"]:
        if rest[1:2] == [_TORCH_LAUNCH]:
            raise NotUnderstoodError(f"{_TORCH_LAUNCH} is not read: write the line of torchrun")
        if rest[1:2] == [_TORCH_RUN]:
            return parse_torchrun(words[3:], nodes, each)
    if name == "torchrun":
        return parse_torchrun(words[1:], nodes, each)
    return parse_launch(words, slurm.Size()) if name in STARTERS else None

"""The launcher's command line and environment."""

from __future__ import annotations

import shutil
import zlib
from itertools import groupby
from typing import Mapping

from hvd_pods.master import mpi
from hvd_pods.master.mpi import HOSTFILE, MpiImplementation, default_interface
from hvd_pods.pod.rank_variables import choose_port
from hvd_pods.pod.reporting import log
from hvd_pods.rules.worker_names import format_ordinals
from hvd_pods.shared import contract
from hvd_pods.shared.binding import OPTIONS
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.launcher_options import LAUNCH
from hvd_pods.shared.paths import BIN, GENERATED, PROGRAMS
from hvd_pods.shared.run import Run, Worker

# The command that launchers start for each rank: it checks its place and runs the script.
RANK = ("python3", "-I", "-S", f"{PROGRAMS}/rank/start.py")


def describe_rendezvous(run: Run, addresses: Mapping[Worker, str], attempt: int) -> str:
    """Return the rendezvous of a launch, with its workers, for pod/rank_variables.py.

    Raises RunError without a worker: the only one may go while it gets the code.
    """
    if not addresses:
        raise RunError("no worker is left to start the ranks on")
    groups = groupby(addresses, key=lambda worker: worker.stateful_set)
    workers = [f"{name}:{','.join(format_ordinals(same))}" for name, same in groups]
    port = choose_port(zlib.crc32(run.service.encode()), attempt)
    return " ".join([next(iter(addresses.values())), str(port), *workers])


def write_ssh(python: str) -> None:
    """Write the command `ssh`, which launchers find first on PATH and at a path of the chart's."""
    mpi.SSH.parent.mkdir(exist_ok=True)
    mpi.SSH.write_text(
        f"#!{python} -IS\nimport sys\nsys.path.insert(0, {BIN!r})\n"
        "from hvd_pods.master import ssh\nssh.main()\n"
    )
    mpi.SSH.chmod(0o755)


def select_mpi(run: Run, variables: Mapping[str, str]) -> MpiImplementation | None:
    """Return the image's MPI, for the command line and host file; None if none is needed.

    A custom command needs no MPI in an image without one, unless the chart starts ranks of an MPI
    program for it: each rank would train alone. Raises ConfigurationError.
    """
    has_mpirun = shutil.which("mpirun", path=variables["PATH"]) is not None
    starts_mpi = LAUNCH in run.args and variables.get(contract.FRAMEWORK) == "mpi"
    if run.mode == "direct" or (run.mode == "custom" and not has_mpirun and not starts_mpi):
        return None
    implementation = mpi.find_mpi(variables)
    log(f"the image's mpirun is {implementation.name}")
    return implementation


def build_command(run: Run, implementation: MpiImplementation | None) -> list[str]:
    """Return the launcher's command line. Raises ConfigurationError for wrong launch.options."""
    if run.mode == "custom":
        return _custom(run, implementation)
    script = run.args or ["python3", f"{PROGRAMS}/rank/allreduce_check.py"]
    return [*_start(run, implementation), *script]


def _start(run: Run, implementation: MpiImplementation | None) -> list[str]:
    """Return the launcher's command line up to the ranks' own command.

    Without an MPI, the chart starts the ranks.
    """
    if implementation is None:
        program = ["python3", "-I", "-S", f"{PROGRAMS}/master/direct.py", str(HOSTFILE)]
        return [*program, *_rank_arguments(run, binds_itself=True)]
    mpi.check_options(run, implementation.launcher)
    return [
        *mpi.mpirun_line(run, implementation),
        *RANK,
        *_rank_arguments(run, binds_itself=implementation.is_hydra),
    ]


def _rank_arguments(run: Run, *, binds_itself: bool) -> list[str]:
    """Return the arguments of RANK before the script's command line."""
    line: list[str] = []
    if binds_itself and run.binding.to != "none":
        for option, value in zip(OPTIONS, run.binding):
            line += [option, str(value)] if value else []
    return [*line, str(run.ranks)]


def _custom(run: Run, implementation: MpiImplementation | None) -> list[str]:
    """Return the user's command with its placeholders, in Kubernetes' syntax, replaced."""
    line: list[str] = []
    for argument in run.args:
        if argument == LAUNCH:
            line += _start(run, implementation)
        else:
            filled = argument.replace("$(NP)", str(run.ranks))
            line.append(filled.replace("$(HOSTFILE)", str(HOSTFILE)))
    return line


def build_environment(run: Run, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the launcher's environment; a variable of master.env overrides the chart's."""
    interface = "" if run.interface else default_interface()
    merged = {**mpi.mpirun_environment(run, interface), **inherited}
    merged["PATH"] = f"{GENERATED}/bin:{inherited.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    return merged

"""The launcher's command line and environment."""

from __future__ import annotations

import os
import shlex
import shutil
import zlib
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Mapping, Sequence

from hvd_pods.common.errors import ConfigurationError, RunError
from hvd_pods.common.paths import GENERATED, PROGRAMS
from hvd_pods.common.rank_variables import choose_port
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host, Run
from hvd_pods.master import mpi
from hvd_pods.master.mpi import HOSTFILE, MpiImplementation, default_interface
from hvd_pods.rules.host_names import format_ordinals

# An argument of a custom command that stands for the whole line with which mpirun is started.
LAUNCH = "$(LAUNCH)"
# What horovodrun calls each second in an elastic run, and the list that it prints.
DISCOVERY = GENERATED / "bin" / "hosts"
LIVE_HOSTS = GENERATED / "hosts"
# What launchers find first on PATH as horovodrun.
GUARD = PROGRAMS / "master" / "guard.py"
GUARDED = GENERATED / "bin" / "horovodrun"
# What launchers start for each rank, which then checks its place and runs the script.
RANK = ("python3", "-I", "-S", str(PROGRAMS / "rank" / "start.py"))
# Bytes of a script's first line that Linux reads.
LONGEST_INTERPRETER = 256


def write_live_hosts(hosts: Sequence[Host]) -> None:
    """Keep the list that an elastic run follows; it is complete at any moment."""
    beside = LIVE_HOSTS.with_suffix(".new")
    beside.write_text("".join(f"{host.address}:{host.slots}\n" for host in hosts))
    beside.replace(LIVE_HOSTS)
    if not DISCOVERY.exists():
        DISCOVERY.write_text(f"#!/bin/sh\nexec cat {LIVE_HOSTS}\n")
        DISCOVERY.chmod(0o755)


def describe_meeting(run: Run, addresses: Mapping[Host, str], attempt: int) -> str:
    """Where the ranks of a launch meet, and its hosts: as common/rank_variables.py reads it.

    Raises RunError without a host: the only one may go while it gets the code.
    """
    if not addresses:
        raise RunError("no host is left to start the ranks on")
    groups = groupby(addresses, key=lambda host: host.stateful_set)
    hosts = [f"{name}:{','.join(format_ordinals(same))}" for name, same in groups]
    port = choose_port(zlib.crc32(run.service.encode()), attempt)
    return " ".join([next(iter(addresses.values())), str(port), *hosts])


def write_ssh(python: str) -> None:
    """Write the command `ssh`, which launchers find first on PATH and at a path of the chart's."""
    mpi.SSH.parent.mkdir(exist_ok=True)
    mpi.SSH.write_text(
        f"#!{python} -IS\nimport sys\nsys.path.insert(0, {str(PROGRAMS.parent)!r})\n"
        "from hvd_pods.master import ssh\nssh.main()\n"
    )
    mpi.SSH.chmod(0o755)


def guard_horovodrun(run: Run) -> None:
    """Let the launcher find the image's horovodrun behind master/guard.py, in the same Python.

    Raises ConfigurationError for an elastic run when its Python is not known.
    """
    program = shutil.which("horovodrun", path=os.environ.get("PATH"))
    if run.mode not in ("horovodrun", "elastic") or program is None:
        return
    first = b""
    # What can be run but not read is no script: its interpreter could not read it either.
    with suppress(OSError), Path(program).open("rb") as file:
        first = file.readline(LONGEST_INTERPRETER)
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if any(Path(word).name.startswith("python") for word in words):
        line = shlex.join([*words, str(GUARD), run.mode, program])
        GUARDED.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        GUARDED.chmod(0o755)
    elif run.elastic:
        raise ConfigurationError(
            f"launch.mode elastic: {program} is not a Python script, so that its servers cannot be "
            "guarded, and they run code for any pod that reaches them: install Horovod with pip, "
            "or use another launch.mode"
        )


def select_mpi(run: Run, variables: Mapping[str, str]) -> MpiImplementation:
    """The MPI whose command line and host file to use: the image's. Raises ConfigurationError."""
    has_mpirun = shutil.which("mpirun", path=variables["PATH"]) is not None
    is_used = run.mode == "custom" and (has_mpirun or LAUNCH in run.args)
    if run.mode != "mpirun" and not is_used:
        # horovodrun reads the host file in Open MPI's form, as do scripts that start no mpirun.
        return mpi.OPEN_MPI_4
    implementation = mpi.find_mpi(variables)
    log(f"the image's mpirun is {implementation.name}")
    return implementation


def build_command(run: Run, implementation: MpiImplementation) -> list[str]:
    """The launcher's complete command line. Raises ConfigurationError for wrong launch.options."""
    if run.mode == "custom":
        return _custom(run, implementation)
    script = run.args or ["python3", str(PROGRAMS / "rank" / "check.py")]
    if run.mode == "direct":
        mpi.check_options(run, run.mode)
        program = ["python3", "-I", "-S", str(PROGRAMS / "master" / "direct.py"), str(HOSTFILE)]
        return [*program, *_rank_arguments(run, binds_itself=True), *script]
    return [*_start(run, implementation), *script]


def _start(run: Run, implementation: MpiImplementation) -> list[str]:
    """The launcher's command line up to the ranks' own command."""
    if run.mode in ("horovodrun", "elastic"):
        mpi.check_options(run, run.mode)
        hosts = (
            _elastic(run) if run.elastic else ["--hostfile", str(HOSTFILE), *_nics(run.interface)]
        )
        number = str(run.ranks_to_start)
        port = str(run.agent_port)
        start = ["horovodrun", "-np", number, *hosts, "--ssh-port", port]
        return [*start, *run.options, *RANK, *_rank_arguments(run, binds_itself=True)]
    mpi.check_options(run, implementation.launcher)
    return [
        *mpi.mpirun_line(run, implementation),
        *RANK,
        *_rank_arguments(run, binds_itself=implementation.hydra),
    ]


def _rank_arguments(run: Run, *, binds_itself: bool) -> list[str]:
    """What RANK gets before the script's command line."""
    line: list[str] = []
    if binds_itself and run.binding.to != "none":
        line += ["--bind-to", run.binding.to]
        for option, number in (
            ("--cores-per-rank", run.binding.cores_per_rank),
            ("--ranks-per-socket", run.binding.ranks_per_socket),
        ):
            line += [option, str(number)] if number else []
    return [*line, "0" if run.elastic else str(run.ranks)]


def _custom(run: Run, implementation: MpiImplementation) -> list[str]:
    """The user's command with its placeholders filled in, written as Kubernetes writes them."""
    line: list[str] = []
    for argument in run.args:
        if argument == LAUNCH:
            line += _start(run, implementation)
        else:
            filled = argument.replace("$(NP)", str(run.ranks))
            line.append(filled.replace("$(HOSTFILE)", str(HOSTFILE)))
    return line


def _elastic(run: Run) -> list[str]:
    """Return horovodrun's options for an elastic run."""
    return [
        "--min-np",
        str(run.min_ranks),
        "--max-np",
        str(run.max_ranks or run.ranks),
        # The cooldown is short: a StatefulSet creates a failed pod again under the same name.
        "--host-discovery-script",
        str(DISCOVERY),
        "--blacklist-cooldown-range",
        "1",
        "10",
        # Without an interface, horovodrun looks for a common one and waits for a second host.
        *_nics(run.interface or default_interface()),
    ]


def _nics(interface: str) -> list[str]:
    return ["--network-interfaces", interface] if interface else []


def build_environment(run: Run, inherited: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment; a variable of master.env overrides the chart's."""
    own = "" if run.interface else default_interface()
    merged = {**mpi.mpirun_environment(run, own), **inherited}
    merged["PATH"] = f"{GENERATED / 'bin'}:{inherited.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    return merged

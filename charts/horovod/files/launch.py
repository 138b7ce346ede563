"""The launcher's command line and environment, and the launcher as it runs."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from types import FrameType
from typing import Mapping, Sequence

import mpi
from mpi import HOSTFILE, Flavour, default_interface
from settings import FILES, GENERATED, ConfigurationError, Host, Run, log

# An argument of a custom command that stands for the whole line with which mpirun is started.
LAUNCH = "$(LAUNCH)"
# What horovodrun calls each second in an elastic run, and the list that it prints.
DISCOVERY = GENERATED / "bin" / "hosts"
LIVE_HOSTS = GENERATED / "hosts"


def write_live_hosts(hosts: Sequence[Host]) -> None:
    """Keep the list that an elastic run follows; whole at any moment."""
    beside = LIVE_HOSTS.with_suffix(".new")
    beside.write_text("".join(f"{host.address}:{host.slots}\n" for host in hosts))
    beside.replace(LIVE_HOSTS)
    if not DISCOVERY.exists():
        DISCOVERY.write_text(f"#!/bin/sh\nexec cat {LIVE_HOSTS}\n")
        DISCOVERY.chmod(0o755)


def needs_mpirun(run: Run) -> bool:
    """Does the run start by a line of mpirun that is made here?"""
    return run.mode == "mpirun" or (run.mode == "custom" and LAUNCH in run.args)


def flavour_for(run: Run, variables: Mapping[str, str]) -> Flavour:
    """The MPI whose forms hold: that of the image's mpirun. Raises ConfigurationError.

    horovodrun reads the host file in Open MPI's form, as do scripts that start no mpirun.
    """
    has_mpirun = shutil.which("mpirun", path=variables["PATH"]) is not None
    if not needs_mpirun(run) and not (run.mode == "custom" and has_mpirun):
        return mpi.OPEN_MPI_4
    flavour = mpi.find_flavour(variables)
    log(f"mpirun is {flavour.name}'s")
    return flavour


def command(run: Run, flavour: Flavour) -> list[str]:
    """The whole command line of the launcher, one argument an item."""
    if run.mode == "custom":
        return _custom(run, flavour)
    script = run.args or ["python3", str(FILES / "check.py")]
    return [*_start(run, flavour), *script]


def _start(run: Run, flavour: Flavour) -> list[str]:
    """The launcher's command line up to the ranks' own command."""
    if run.mode in ("horovodrun", "elastic"):
        hosts = (
            _elastic(run) if run.elastic else ["--hostfile", str(HOSTFILE), *_nics(run.interface)]
        )
        start = ["horovodrun", "-np", str(run.ranks), *hosts, "--ssh-port", str(run.ssh_port)]
        return [*start, *run.options, *_rank(run, binds_itself=True)]
    return [*mpi.mpirun(run, flavour), *_rank(run, binds_itself=flavour.hydra)]


def _rank(run: Run, *, binds_itself: bool) -> list[str]:
    """What is started for each rank, which then checks its place and becomes the script."""
    line = ["python3", "-I", str(FILES / "rank.py")]
    if binds_itself and run.binding.to != "none":
        line += ["--bind-to", run.binding.to]
        for option, number in (
            ("--cores-per-rank", run.binding.cores_per_rank),
            ("--ranks-per-socket", run.binding.ranks_per_socket),
        ):
            line += [option, str(number)] if number else []
    return [*line, "0" if run.elastic else str(run.ranks)]


def _custom(run: Run, flavour: Flavour) -> list[str]:
    """The user's command with its placeholders filled in, written as Kubernetes writes them."""
    line: list[str] = []
    for argument in run.args:
        if argument == LAUNCH:
            line += _start(run, flavour)
        else:
            filled = argument.replace("$(NP)", str(run.ranks))
            line.append(filled.replace("$(HOSTFILE)", str(HOSTFILE)))
    return line


def _elastic(run: Run) -> list[str]:
    """A host that failed may come back under its name: its pod is made anew."""
    return [
        *("--min-np", str(run.min_ranks), "--max-np", str(run.max_ranks)),
        *("--host-discovery-script", str(DISCOVERY), "--blacklist-cooldown-range", "1", "10"),
        # Left to find out by itself, horovodrun waits in silence for a second host.
        *_nics(run.interface or default_interface()),
    ]


def _nics(interface: str) -> list[str]:
    return ["--network-interfaces", interface] if interface else []


def environment(run: Run, inherited: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment; each setting yields to one of the same name in master.env."""
    merged = {**mpi.environment(run, run.interface or default_interface()), **inherited}
    merged["PATH"] = f"{GENERATED / 'bin'}:{inherited.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    return merged


class Launcher:
    """The running launcher, to which a request to end is passed on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = False
        signal.signal(signal.SIGTERM, self._stop)

    def was_stopped(self) -> bool:
        """Has this pod been asked to end?"""
        return self.stopped

    def run(self, arguments: list[str], environment: Mapping[str, str]) -> int:
        """Run to the end and return the exit code, 128 + signal number when a signal ended it."""
        program = arguments[0]
        if shutil.which(program, path=environment["PATH"]) is None:
            raise ConfigurationError(f"the image has no {program} on PATH ({environment['PATH']})")
        log(f"$ {shlex.join(arguments)}")
        if self.stopped:
            return 128 + signal.SIGTERM
        self._process = subprocess.Popen(arguments, env=dict(environment), cwd=Path.cwd())
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def _stop(self, number: int, frame: FrameType | None) -> None:
        log("asked to end: ending the ranks")
        self.stopped = True
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

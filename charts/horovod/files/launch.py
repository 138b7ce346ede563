"""The launcher's command line, host file and environment."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from types import FrameType
from typing import Mapping, Sequence

from settings import FILES, GENERATED, ConfigurationError, Host, Run, say

HOSTFILE = GENERATED / "hostfile"
# What horovodrun calls each second in an elastic run, and the list that it prints.
DISCOVERY = GENERATED / "bin" / "hosts"
LIVE_HOSTS = GENERATED / "hosts"


def hostfile(hosts: Sequence[Host]) -> str:
    """Open MPI's host file, which horovodrun reads too."""
    return "".join(f"{host.address} slots={host.slots}\n" for host in hosts)


def write_live_hosts(hosts: Sequence[Host]) -> None:
    """Keep the list that an elastic run follows; whole at any moment."""
    beside = LIVE_HOSTS.with_suffix(".new")
    beside.write_text("".join(f"{host.address}:{host.slots}\n" for host in hosts))
    beside.replace(LIVE_HOSTS)
    if not DISCOVERY.exists():
        DISCOVERY.write_text(f"#!/bin/sh\nexec cat {LIVE_HOSTS}\n")
        DISCOVERY.chmod(0o755)


def command(run: Run) -> list[str]:
    """The whole command line of the launcher, one argument an item."""
    if run.mode == "custom":
        return [_filled_in(argument, run) for argument in run.args]
    script = run.args or ["python3", str(FILES / "check.py")]
    ranks = 0 if run.elastic else run.ranks
    rank = ["python3", "-I", str(FILES / "rank.py"), str(ranks), *script]
    if run.mode in ("horovodrun", "elastic"):
        hosts = (
            _elastic(run) if run.elastic else ["--hostfile", str(HOSTFILE), *_nics(run.interface)]
        )
        start = ["horovodrun", "-np", str(run.ranks), *hosts, "--ssh-port", str(run.ssh_port)]
        return [*start, *run.options, *rank]
    start = ["mpirun", "-np", str(run.ranks), "--hostfile", str(HOSTFILE)]
    return [*start, *_binding(run.options), *run.options, *rank]


def _filled_in(argument: str, run: Run) -> str:
    """A custom command's placeholders, in the form in which Kubernetes writes them."""
    return argument.replace("$(NP)", str(run.ranks)).replace("$(HOSTFILE)", str(HOSTFILE))


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


def default_interface(table: str = "") -> str:
    """The interface of this pod's default route, empty when there is none."""
    rows = (table or Path("/proc/net/route").read_text()).splitlines()[1:]
    return next((row.split()[0] for row in rows if row.split()[1] == "00000000"), "")


def _binding(options: Sequence[str]) -> list[str]:
    """Left to itself Open MPI binds each rank to a core, in a container often all to the same."""
    names = {option.split("=")[0].lstrip("-") for option in options}
    return [] if names & {"bind-to", "rankfile", "cpu-set", "cpu-list"} else ["--bind-to", "none"]


def environment(run: Run, inherited: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment: what Open MPI 4 (OMPI) and 5 (PRTE) must know to use the hosts.

    Each setting yields to one of the same name in master.env.
    """
    settings = {
        # Hosts are POD.SERVICE: cut at the dot, two names of one host would be two hosts.
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
        # The master starts every daemon itself: workers need no key to one another.
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_num_concurrent": str(max(128, len(run.hosts))),
        "PRTE_MCA_plm_ssh_num_concurrent": str(max(128, len(run.hosts))),
        # Shared memory and TCP; other transports are asked for in launch.options.
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "^openib",
        # A container is the jail here; root images are run as root on purpose.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    if run.interface:
        settings.update(
            {
                "OMPI_MCA_btl_tcp_if_include": run.interface,
                "OMPI_MCA_oob_tcp_if_include": run.interface,
                "PRTE_MCA_oob_tcp_if_include": run.interface,
            }
        )
    merged = {**settings, **inherited}
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
        say(f"$ {shlex.join(arguments)}")
        if self.stopped:
            return 128 + signal.SIGTERM
        self._process = subprocess.Popen(arguments, env=dict(environment), cwd=Path.cwd())
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def _stop(self, number: int, frame: FrameType | None) -> None:
        say("asked to end: ending the ranks")
        self.stopped = True
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

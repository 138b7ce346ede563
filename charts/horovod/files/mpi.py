"""The MPIs that an image's mpirun may be: which one it is, its command line, host file, variables.

Seen with Open MPI 4.1.4 and 5.0.11, Intel MPI 2021.18 and MPICH 4.3 and 5.0; docs/launch.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from settings import GENERATED, ConfigurationError, Host, Run

HOSTFILE = GENERATED / "hostfile"
SSH = GENERATED / "bin" / "ssh"


@dataclass(frozen=True)
class Flavour:
    """One MPI. `hydra`: its mpirun is Hydra, which Intel MPI and MPICH share."""

    name: str
    hydra: bool
    # Options, without dashes, that another MPI has and this one's mpirun does not.
    unknown: frozenset[str]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_OPEN_MPI = _words(
    "mca gmca x report-bindings rankfile cpu-set cpu-list tag-output display-map oversubscribe "
    "hostfile H allow-run-as-root"
)
_OF_5 = _words("prtemca pmixmca display output runtime-options")
_OF_HYDRA = _words(
    "genv genvall genvnone genvlist ppn perhost iface f hosts launcher launcher-exec bootstrap "
    "bootstrap-exec prepend-rank print-rank-map localhost"
)
_PLACING = _words("bind-to map-by membind")

OPEN_MPI_4 = Flavour("Open MPI 4", False, _OF_HYDRA | _OF_5)
OPEN_MPI_5 = Flavour("Open MPI 5", False, _OF_HYDRA)
INTEL_MPI = Flavour("Intel MPI", True, _OF_OPEN_MPI | _OF_5 | _PLACING)
MPICH = Flavour("MPICH", True, _OF_OPEN_MPI | _OF_5)


def flavour_of(said: str) -> Flavour | None:
    """The MPI that answers `mpirun --version` with this; None when it is none of those known."""
    open_mpi = re.search(r"(?:Open MPI|OpenRTE)\)? (\d+)", said)
    if open_mpi:
        return OPEN_MPI_5 if int(open_mpi[1]) >= 5 else OPEN_MPI_4
    if "Intel(R) MPI" in said:
        return INTEL_MPI
    return MPICH if "HYDRA" in said or "MPICH" in said else None


def find_flavour(environment: Mapping[str, str]) -> Flavour:
    """Ask the image's mpirun what it is. Raises ConfigurationError when there is none to use."""
    program = shutil.which("mpirun", path=environment["PATH"])
    if program is None:
        raise ConfigurationError(
            f"the image has no mpirun on PATH ({environment['PATH']}): install an MPI, or set "
            "launch.mode to horovodrun or elastic, which need none"
        )
    done = subprocess.run(
        [program, "--version"],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = flavour_of(done.stdout)
    if found is None:
        raise ConfigurationError(
            f"{program} --version (exit code {done.returncode}) names no MPI known here (Open MPI, "
            f"Intel MPI, MPICH): {done.stdout.strip()[:300]!r}; give its whole command line with "
            "launch.mode custom"
        )
    return found


def check_options(options: Sequence[str], flavour: Flavour) -> None:
    """Refuse options of another MPI: its own error would not say where they are from."""
    for option in options:
        if option.startswith("-") and option.lstrip("-").partition("=")[0] in flavour.unknown:
            raise ConfigurationError(
                f"launch.options has {option}, which the mpirun of this image does not know: it is "
                f"{flavour.name}'s; give its own option, or use launch.binding, network.interface "
                "and network.transport, which every MPI follows"
            )


def hostfile(hosts: Sequence[Host], flavour: Flavour) -> str:
    """The host file as the MPI reads it; Open MPI's form is horovodrun's and older charts' too."""
    between = ":" if flavour.hydra else " slots="
    return "".join(f"{host.address}{between}{host.slots}\n" for host in hosts)


def mpirun(run: Run, flavour: Flavour) -> list[str]:
    """The command line up to the ranks' own command."""
    check_options(run.options, flavour)
    start = ["mpirun", "-np", str(run.ranks)]
    if not flavour.hydra:
        return [*start, "--hostfile", str(HOSTFILE), *_open_mpi_binding(run), *run.options]
    if flavour is INTEL_MPI:
        # With -f it fills hosts by their cores; only here do the numbers in the file count.
        hosts = ["-machinefile", str(HOSTFILE)]
    else:
        # Workers call back, and may not resolve the master's name. Intel MPI has an interface.
        hosts = ["-f", str(HOSTFILE), "-localhost", os.environ["HVD_POD_IP"]]
    # The ranks' environment is their worker's, not the master's.
    return [*start, *hosts, "-genvnone", *run.options]


def _open_mpi_binding(run: Run) -> list[str]:
    """Left to itself Open MPI binds each rank to a core, in a container often all to the same."""
    named = {option.partition("=")[0].lstrip("-") for option in run.options}
    if named & {"bind-to", "rankfile", "cpu-set", "cpu-list"}:
        return []
    binding = run.binding
    if binding.to == "none":
        mapping = [] if "map-by" in named else ["--map-by", "slot"]
        return [*mapping, "--bind-to", "none"]
    where = f"ppr:{binding.ranks_per_socket}:socket" if binding.ranks_per_socket else "slot"
    cores = f":PE={binding.cores_per_rank}" if binding.to == "core" else ""
    return ["--map-by", f"{where}{cores}", "--bind-to", binding.to, "--report-bindings"]


def environment(run: Run, interface: str) -> dict[str, str]:
    """What each MPI's mpirun must know to use the hosts; the other MPIs' variables do nothing.

    `interface` is the master's own, by which workers reach it; empty when not known.
    """
    at_once = str(max(128, len(run.hosts)))
    settings = {
        # Hosts are POD.SERVICE: cut at the dot, two names of one host would be two hosts.
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
        # The master starts every daemon itself: workers need no key to one another.
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_num_concurrent": at_once,
        "PRTE_MCA_plm_ssh_num_concurrent": at_once,
        "I_MPI_HYDRA_BRANCH_COUNT": at_once,
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(SSH),
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(SSH),
        # Shared memory and TCP unless RDMA is asked for; the others find RDMA themselves.
        "OMPI_MCA_pml": "ucx" if run.transport == "RDMA" else "ob1",
        "OMPI_MCA_btl": "^openib",
        # A container is the jail here; root images are run as root on purpose.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    if interface:
        settings["I_MPI_HYDRA_IFACE"] = interface
    if run.interface:
        settings.update(
            {
                "OMPI_MCA_btl_tcp_if_include": run.interface,
                "OMPI_MCA_oob_tcp_if_include": run.interface,
                "PRTE_MCA_prte_if_include": run.interface,
            }
        )
    return settings


def default_interface(table: str = "") -> str:
    """The interface of this pod's default route, empty when there is none."""
    rows = (table or Path("/proc/net/route").read_text()).splitlines()[1:]
    return next((row.split()[0] for row in rows if row.split()[1] == "00000000"), "")

"""The MPI implementations that an image's mpirun may be: detection, command line, host file.

Seen with Open MPI 4.1.4 and 5.0.11, Intel MPI 2021.18 and MPICH 4.3 and 5.0; docs/launch.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from hvd_pods.shared import contract
from hvd_pods.shared.errors import ConfigurationError
from hvd_pods.shared.launcher_options import (
    LAUNCHER_OPTIONS,
    find_conflicts,
    list_options,
    tags_output,
)
from hvd_pods.shared.paths import GENERATED
from hvd_pods.shared.run import Run, Worker

HOSTFILE = Path(GENERATED, "hostfile")
SSH = Path(GENERATED, "bin", "ssh")
# The number of daemons to which a daemon forwards messages.
BRANCHES: int = LAUNCHER_OPTIONS["connections"]["branches"]


@dataclass(frozen=True)
class MpiImplementation:
    """An MPI: its id among the launchers, whether its mpirun is Hydra (Intel MPI, MPICH), and the
    options that put the rank before each line of the output.
    """

    launcher: str
    is_hydra: bool
    tags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in messages."""
        return str(LAUNCHER_OPTIONS["launchers"][self.launcher])


OPEN_MPI_4 = MpiImplementation("openmpi4", is_hydra=False, tags=("--tag-output",))
# --tag-output of 5.0.7 adds a space to the tag of 4: a line that itself begins with a space looks
# the same. The full name of the launch avoids that.
OPEN_MPI_5 = MpiImplementation("openmpi5", is_hydra=False, tags=("--output", "tag-fullname"))
INTEL_MPI = MpiImplementation("intel", is_hydra=True, tags=("-prepend-rank",))
MPICH = MpiImplementation("mpich", is_hydra=True, tags=("-prepend-rank",))


def detect_mpi(version_output: str) -> MpiImplementation | None:
    """Return the MPI that prints this for `mpirun --version`; None for an unknown one."""
    open_mpi = re.search(r"(?:Open MPI|OpenRTE)\)? (\d+)", version_output)
    if open_mpi:
        return OPEN_MPI_5 if int(open_mpi[1]) >= 5 else OPEN_MPI_4
    if "Intel(R) MPI" in version_output:
        return INTEL_MPI
    return MPICH if "HYDRA" in version_output or "MPICH" in version_output else None


def find_mpi(environment: Mapping[str, str]) -> MpiImplementation:
    """Run the image's `mpirun --version`. Raises ConfigurationError without an mpirun to use."""
    program = shutil.which("mpirun", path=environment["PATH"])
    if program is None:
        raise ConfigurationError(
            f"the image has no mpirun on PATH ({environment['PATH']}): add openmpi or "
            "mpich to a requirements.txt beside the script, install an MPI, or choose "
            "`launch.mode: direct`, which needs none"
        )
    done = subprocess.run(
        [program, "--version"],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    implementation = detect_mpi(done.stdout)
    if implementation is None:
        raise ConfigurationError(
            f"{program} --version (exit code {done.returncode}) names none of the known MPIs (Open "
            f"MPI, Intel MPI, MPICH): {done.stdout.strip()[:300]!r}; give its whole command line "
            "with `launch.mode: custom`"
        )
    return implementation


def check_options(run: Run, launcher: str) -> None:
    """Check launch.options for a launcher, named by its id. Raises ConfigurationError.

    Only the pod knows the image's MPI. The MPI's own error would not name the origin of the option.
    """
    bound = run.binding.to != "none"
    for index, reason, option in find_conflicts(run.options, [launcher], binding=bound):
        problem = {
            "value": f"the chart sets that from {option.get('value')}: remove it from "
            "`launch.options`",
            "launcher": f"{LAUNCHER_OPTIONS['launchers'][launcher]}, the launcher of this image, "
            "does not have that option: use an option of that launcher, or `launch.binding`, "
            "`network.interface` and `network.transport`, which work with every launcher",
            "binding": f"`launch.binding.to` is {run.binding.to}: give one of the two",
        }[reason]
        raise ConfigurationError(f"`launch.options` has {run.options[index]}, but {problem}")


def count_clients(run: Run) -> int:
    """Return how many clients of the gateway the launcher keeps in the master's container.

    A worker may not start daemons on other workers: there is one client for each worker. Mode
    direct needs no process for a worker.
    """
    return 0 if run.mode == "direct" else len(run.workers)


def format_hostfile(
    addresses: Mapping[Worker, str], implementation: MpiImplementation | None
) -> str:
    """Return the host file for the MPI; without one, in Open MPI's format.

    The old horovod chart wrote that format.
    """
    separator = ":" if implementation and implementation.is_hydra else " slots="
    return "".join(f"{worker.address}{separator}{worker.slots}\n" for worker in addresses)


def mpirun_line(run: Run, implementation: MpiImplementation) -> list[str]:
    """Return the command line up to the ranks' own command."""
    start = ["mpirun", "-np", str(run.ranks)]
    options = run.options
    if os.environ.get(contract.TAG_OUTPUT) and not tags_output(options):
        options = [*implementation.tags, *options]
    if not implementation.is_hydra:
        return [*start, "--hostfile", str(HOSTFILE), *_open_mpi_binding(run), *options]
    if implementation is INTEL_MPI:
        # With -f, Intel MPI fills hosts by their cores. It uses the file's numbers only here.
        hosts = ["-machinefile", str(HOSTFILE)]
    else:
        # Workers connect back, and may not resolve the master's name. Intel MPI uses an interface.
        hosts = ["-f", str(HOSTFILE), "-localhost", os.environ[contract.POD_IP]]
    # The ranks' environment is their worker's, not the master's.
    return [*start, *hosts, "-genvnone", *options]


def _open_mpi_binding(run: Run) -> list[str]:
    """Return binding options: Open MPI's default binds each rank to a core, often all to one."""
    effects = {option.get("binding") for _, option in list_options(run.options)}
    if "binds" in effects:
        return []
    binding = run.binding
    if binding.to == "none":
        options = [] if "maps" in effects else ["--map-by", "slot"]
        return [*options, "--bind-to", "none"]
    mapping = f"ppr:{binding.ranks_per_socket}:socket" if binding.ranks_per_socket else "slot"
    cores = f":PE={binding.cores_per_rank}" if binding.to == "core" else ""
    return ["--map-by", f"{mapping}{cores}", "--bind-to", binding.to, "--report-bindings"]


def mpirun_environment(run: Run, interface: str) -> dict[str, str]:
    """Return the variables by which each MPI's mpirun uses the workers; others ignore them.

    `interface` is the interface of the master's default route, over which workers reach it; empty
    if there is none.
    """
    workers = str(len(run.workers))
    return {
        # Hosts are POD.SERVICE: cut at the dot, two names of one host would be two hosts.
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
        # The master starts all daemons: a worker may not ask another one. Open MPI 5 lets no client
        # end before all daemons are up, so that a lower limit on clients would never be reached.
        "OMPI_MCA_plm_rsh_agent": str(SSH),
        "PRTE_MCA_plm_ssh_agent": str(SSH),
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_routed_radix": str(BRANCHES),
        "PRTE_MCA_rml_base_radix": str(BRANCHES),
        "OMPI_MCA_plm_rsh_num_concurrent": workers,
        "PRTE_MCA_plm_ssh_num_concurrent": workers,
        # A daemon that detached itself would end with the agent connection that started it.
        "OMPI_MCA_orte_leave_session_attached": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        # After a rank has failed, Open MPI sends the others SIGCONT, SIGTERM and SIGKILL, a second
        # apart. The others wait in a collective with the lost rank, where no signal handler would
        # run.
        "OMPI_MCA_odls_base_sigkill_timeout": "0",
        "PRTE_MCA_odls_base_sigkill_timeout": "0",
        "I_MPI_HYDRA_BRANCH_COUNT": "-1",
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(SSH),
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(SSH),
        # Shared memory and TCP unless RDMA is asked for; the others find RDMA themselves.
        "OMPI_MCA_pml": "ucx" if run.transport == "RDMA" else "ob1",
        # These carry no messages, but each rank would look for their devices, which takes 150 ms of
        # CPU time. This replaces Debian's own settings, which also exclude them.
        "OMPI_MCA_btl": "^openib,ofi,uct,usnic",
        # A container is the jail here; root images are run as root on purpose.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **(default_hostfiles() if run.mode == "custom" else {}),
        **master_interface_variables(run.interface, interface),
    }


def default_hostfiles() -> dict[str, str]:
    """Return the variables by which each MPI's mpirun finds the workers without an option.

    A custom command may be any script that calls mpirun as on one machine. Without these variables
    it would train in the master alone.
    """
    return dict.fromkeys(
        (
            "OMPI_MCA_orte_default_hostfile",
            "PRTE_MCA_prte_default_hostfile",
            "I_MPI_HYDRA_HOST_FILE",
            "HYDRA_HOST_FILE",
        ),
        str(HOSTFILE),
    )


def master_interface_variables(interface: str, default: str) -> dict[str, str]:
    """Return the variables for network.interface and the default route's; either may be empty."""
    variables = {}
    for variable in LAUNCHER_OPTIONS["interfaceVariables"]:
        chosen = interface or (default if variable.get("always") else "")
        if "master" in variable["setOn"] and chosen:
            variables[variable["name"]] = chosen
    return variables


def default_interface(table: str = "") -> str:
    """Return the interface of this pod's default route; empty if there is none."""
    rows = (table or Path("/proc/net/route").read_text()).splitlines()[1:]
    return next((row.split()[0] for row in rows if row.split()[1] == "00000000"), "")

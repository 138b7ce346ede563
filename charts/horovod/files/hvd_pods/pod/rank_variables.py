"""The variables that give programs without MPI their place and rendezvous: torchrun's and JAX's.

The request to an agent names the rendezvous of a launch's ranks, beside the fence number:
`ADDRESS PORT STATEFULSET:ORDINALS...`, for instance `10.0.0.7 61004 hvd-worker:0-3,5`. The address
is that of the first worker, which has rank 0.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

from hvd_pods.shared import contract
from hvd_pods.shared.contract import RENDEZVOUS
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION
from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS
from hvd_pods.shared.ranges import parse_pod_names

# The name of this worker's pod.
POD = contract.POD
# Above the ports that Linux gives to clients (32768 to 60999) and NodePorts (30000 to 32767). A
# launch has two of them, one for PyTorch and one for JAX; the next launch has the two after them.
FIRST_PORT = 61000
# After this many launches, the ports are used again.
PORT_PAIRS = 2000


class RendezvousError(Exception):
    """The ranks cannot meet at rank 0's worker; `code` is the rank's exit code."""

    def __init__(self, problem: str, code: int) -> None:
        super().__init__(problem)
        self.code = code


def choose_port(seed: int, attempt: int) -> int:
    """Return the first of a launch's two ports; `seed` separates runs on the same hosts' network.

    Another attempt has another port, so that a process that occupies this one does not block it.
    """
    return FIRST_PORT + 2 * ((seed + attempt) % PORT_PAIRS)


def choose(place: Sequence[int], environment: Mapping[str, str]) -> dict[str, str]:
    """Return a rank's variables for its environment. `place`: rank, size, local rank and size.

    If MASTER_ADDR, MASTER_PORT, JAX_COORDINATOR_ADDRESS or TORCHELASTIC_RUN_ID is given, for
    instance by worker.env, it stays.
    """
    rank, size, local_rank, local_size = map(str, place)
    values = {"rank": rank, "size": size, "localRank": local_rank, "localSize": local_size}
    names = LAUNCHER_OPTIONS["placeVariables"]
    chosen = {name: value for kind, value in values.items() for name in names[kind]}
    address, port, workers = split(environment)
    if not port.isdecimal():
        return chosen
    pods = list(parse_pod_names(workers))
    if environment.get(POD) in pods:
        chosen.update(dict.fromkeys(names["worker"], str(pods.index(environment[POD]))))
    shown = f"[{address}]" if ":" in address else address
    rendezvous = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "JAX_COORDINATOR_ADDRESS": f"{shown}:{int(port) + 1}",
        # Lightning takes all numbers from the variables above when it finds this one.
        "TORCHELASTIC_RUN_ID": environment.get(contract.ATTEMPT, "1"),
    }
    if environment.get(contract.FRAMEWORK) == "jax":
        # JAX takes a rank's number only from a launcher that it detects: imitate Open MPI 4.
        rendezvous.update(
            OMPI_MCA_orte_hnp_uri=f"0.0;tcp://{shown}:{int(port) + 1}",
            OMPI_COMM_WORLD_RANK=rank,
            OMPI_COMM_WORLD_SIZE=size,
            OMPI_COMM_WORLD_LOCAL_RANK=local_rank,
        )
    for name, value in rendezvous.items():
        chosen[name] = environment.get(name, value)
    return chosen


def output_of_run(environment: Mapping[str, str]) -> dict[str, str]:
    """Create a folder below OUTPUT_PATH that only this run uses, and return its variables.

    Return no variables if HVD_OUTPUT_PER_RUN does not request it (`hvdchart dev` does), if the
    folder is already chosen, or if it cannot be created: the script will report why it cannot write
    there.
    """
    output = environment.get("OUTPUT_PATH", "").rstrip("/")
    name = f"run-{environment.get(contract.RUN_ID, '')}"
    if (
        not output
        or not environment.get(contract.OUTPUT_PER_RUN)
        or output.rpartition("/")[2] == name
    ):
        return {}
    folder = f"{output}/{name}"
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return {}
    chosen = {"OUTPUT_PATH": folder}
    checkpoints = environment.get("CHECKPOINT_PATH", "")
    if checkpoints.startswith(f"{output}/"):
        chosen["CHECKPOINT_PATH"] = folder + checkpoints[len(output) :]
    return chosen


def split(environment: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the address, the port and the workers of HVD_RENDEZVOUS.

    They are empty if the master sent no such variable.
    """
    address, _, rest = environment.get(RENDEZVOUS, "").partition(" ")
    port, _, workers = rest.partition(" ")
    return address, port, workers


def check_rendezvous(environment: Mapping[str, str]) -> None:
    """Check that the ranks can meet at this worker, which has rank 0, with its environment.

    Only ranks of PyTorch and JAX meet there, each at its own port, unless worker.env names another
    rendezvous. Raises RendezvousError when the other ranks look for rank 0 on another worker, and
    when the port is occupied.
    """
    address, port, _ = split(environment)
    framework = environment.get(contract.FRAMEWORK)
    if not port.isdecimal() or framework not in ("torch", "jax"):
        return
    number = int(port)
    names = ["MASTER_ADDR", "MASTER_PORT"]
    if framework == "jax":
        number += 1
        names = ["JAX_COORDINATOR_ADDRESS"]
    chosen = choose((0, 1, 0, 1), {RENDEZVOUS: environment[RENDEZVOUS]})
    if any(environment.get(name) != chosen[name] for name in names):
        return
    if environment.get("NODE_RANK", "0") != "0":
        raise RendezvousError(
            "rank 0 is not on the first worker, where the other ranks look for it: remove what "
            "moves it from `launch.options`",
            BAD_CONFIGURATION,
        )
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
        # Closed connections of an ended program may be left. They do no harm.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", number))
        except OSError as problem:
            raise RendezvousError(
                f"the ranks cannot meet at port {number} of this worker: {problem.strerror}; "
                "the next attempt uses another port",
                os.EX_TEMPFAIL,
            ) from problem

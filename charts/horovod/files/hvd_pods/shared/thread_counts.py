"""Chooses the number of threads of a rank's libraries from its cores, unless a user sets it.

Without a number, TensorFlow and OpenMP start as many threads as the host has CPUs, in every rank.
hvdchart's plan gets its numbers from `plan_threads`, for the cores that a spec describes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from hvd_pods.shared import binding, files
from hvd_pods.shared.paths import CGROUPS

# Open MPI: a rank that waits for another one yields its core to ranks that compute. Two unbound
# ranks on two cores trained ResNet-50 by a fifth faster (before the patch cycles-in-step).
YIELD = "OMPI_MCA_mpi_yield_when_idle"
# Horovod asks all ranks each millisecond which tensors are ready. Over Gloo, that took 14 to 20 %
# of the speed of ranks of one CPU each. At an interval of 5 ms, it took 7 to 10 %
# (docs/performance.md).
CYCLE = "HOROVOD_CYCLE_TIME"
GLOO_CYCLE_MS = 5
# The files with the quota and its period, in cgroup v2 and in v1.
QUOTA_FILES = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
DEVICES = "/dev"


def set_threads(environment: MutableMapping[str, str], ranks: int) -> str:
    """Set the variables that this rank's environment lacks; return what to log, or "".

    `ranks` is the number of ranks in this container.
    """
    cpus = os.sched_getaffinity(0)
    # The launcher binds its ranks but not itself.
    chosen = choose_threads(environment, ranks, cpus, cpus | os.sched_getaffinity(os.getppid()))
    environment.update(chosen)
    pairs = " ".join(f"{name}={value}" for name, value in chosen.items())
    return f"chosen for the cores of each rank; `worker.env` overrides: {pairs}" if pairs else ""


def choose_threads(
    environment: Mapping[str, str], ranks: int, cpus: set[int], container: set[int]
) -> dict[str, str]:
    """Return the variables that `environment` lacks, for one of `ranks` ranks in this container.

    `cpus` are the CPUs that the rank may use, and `container` those of its container.
    """
    cores = cores_of_a_rank(
        count_cores(cpus), count_cores(container), read_quota(CGROUPS), max(1, ranks)
    )
    gpus = has_gpus(DEVICES)
    wanted = plan_threads(cores, gpus)
    if cpus == container and not gpus:
        wanted[YIELD] = "1"
    is_gloo = environment.get("HOROVOD_CPU_OPERATIONS", "").upper() == "GLOO"
    if is_gloo and not gpus and "HOROVOD_AUTOTUNE" not in environment:
        wanted.update(plan_cycle(cores))
    return {name: value for name, value in wanted.items() if name not in environment}


def cores_of_a_rank(cores: int, container: int, quota: float | None, ranks: int) -> int:
    """Return the cores of each of `ranks` equal ranks: their share, or fewer if they are bound.

    `cores` and `container` are numbers of cores. `quota` is the container's CPU limit, None without
    one. A part of a core does not count, and a rank has at least one core.
    """
    available = container if quota is None else min(container, quota)
    return max(1, int(min(cores, available / ranks)))


def plan_threads(cores: int, gpus: bool) -> dict[str, str]:
    """Return the variables of a rank with this number of cores.

    docs/planning.md gives the source of the numbers.
    """
    inter_op = max(2, cores - 2) if gpus else min(2, cores)
    variables = {
        "OMP_NUM_THREADS": str(cores),
        "TF_NUM_INTRAOP_THREADS": str(max(cores - 2, min(cores, 3))),
        "TF_NUM_INTEROP_THREADS": str(inter_op),
    }
    return variables if gpus else {**variables, "TF_ENABLE_ONEDNN_OPTS": "1"}


def plan_cycle(cores: int) -> dict[str, str]:
    """Return the variable with the cycle time of a rank that meets others over Gloo.

    It is 5 ms for one core, less for more cores, and from five cores on Horovod's own 1 ms.
    """
    return {CYCLE: f"{GLOO_CYCLE_MS / cores:g}"} if cores < GLOO_CYCLE_MS else {}


def count_cores(cpus: set[int], root: str | os.PathLike[str] = binding.CPUS) -> int:
    """Return the number of physical cores of some CPUs: hyperthreads share one.

    If a host does not describe its CPUs, as some virtual machines do not, each CPU counts as a
    core.
    """
    try:
        return sum(len(socket) for socket in binding.read_topology(cpus, root))
    except binding.BindingError:
        return len(cpus)


def read_quota(root: str | os.PathLike[str]) -> float | None:
    """Return this container's CPU limit, in CPUs; None if there is none, or it is unreadable."""
    for names in QUOTA_FILES:
        try:
            texts = [files.read(os.path.join(root, name)).decode() for name in names]
            quota, period = " ".join(texts).split()[:2]
            # Without a limit, cgroup v2 has the word max and v1 has -1.
            return int(quota) / int(period) if int(quota) > 0 else None
        except (OSError, ValueError):
            continue
    return None


def has_gpus(root: str | os.PathLike[str]) -> bool:
    """Return whether this container has the file of an accelerator of NVIDIA, AMD or Intel."""
    names = files.list_names(root)
    graphics = files.list_names(os.path.join(root, "dri"))
    is_nvidia = any(name.startswith("nvidia") and name[6:7].isdigit() for name in names)
    return is_nvidia or "kfd" in names or any(name.startswith("renderD") for name in graphics)

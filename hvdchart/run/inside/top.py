"""The resource use of a run's pods: CPU, memory, GPUs, and the step and speed of each rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hvd_pods.shared import paths
from hvd_pods.shared.gpu_sample import GPU_SAMPLE
from hvdchart.errors import ClusterError
from hvdchart.run.kube.kubectl import Kubectl
from hvdchart.run.state.view import RunView
from hvdchart.text import format_table, percent_range

# The figures of the container's control group, of version 2 or 1: CPU time in seconds, twice, and
# memory in bytes.
_PROBE = r"""
cpu() { sed -n 's/^usage_usec //p' /sys/fs/cgroup/cpu.stat 2>/dev/null | grep . ||
  echo $(( $(cat /sys/fs/cgroup/cpuacct/cpuacct.usage) / 1000 )); }
echo "cpu $(cpu) $(cut -d' ' -f1 /proc/uptime)"; sleep 1
echo "cpu $(cpu) $(cut -d' ' -f1 /proc/uptime)"
echo "memory $(cat /sys/fs/cgroup/memory.current 2>/dev/null ||
  cat /sys/fs/cgroup/memory/memory.usage_in_bytes)"
"""
# The files of the ranks.
_RANKS_PROBE = f"""
cd {paths.METRICS} 2>/dev/null && grep -H '^hvdchart_' [0-9]* 2>/dev/null
"""
# The metrics of the worker's GPUs, if a process reads them.
_GPU_PROBE = f"""
[ -S {paths.GPUS_SOCKET} ] && python3 -I -S {paths.GPUS_PROGRAM} 2>/dev/null
"""
_SHARE = "utilization_ratio"
_RANK_LINE = re.compile(r"(\d+):hvdchart_(step|samples_per_second) ([-+0-9.eE]+)")


@dataclass
class Usage:
    """The resource use of a pod: CPUs over a second, and bytes of memory; None where unknown.

    `ranks` has `step` and `samples_per_second` for each rank that reports them. `gpus` has the
    known figures of each GPU, by its labels: `utilization_ratio`, `memory_used_bytes` and
    `memory_bytes`.
    """

    pod: str
    cpus: float | None = None
    memory: int | None = None
    ranks: dict[int, dict[str, float]] = field(default_factory=dict)
    gpus: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def gpu_shares(self) -> tuple[float, float] | None:
        """Return the lowest and the highest GPU utilization, from 0 to 1; None if unknown."""
        shares = [gpu[_SHARE] for gpu in self.gpus.values() if _SHARE in gpu]
        return (min(shares), max(shares)) if shares else None

    @property
    def gpu_memory(self) -> tuple[float, float] | None:
        """Return the bytes of the fullest GPU: used, and in all; None if unknown."""
        memories = [
            (gpu["memory_used_bytes"], gpu["memory_bytes"])
            for gpu in self.gpus.values()
            if gpu.get("memory_bytes") and "memory_used_bytes" in gpu
        ]
        return max(memories, key=lambda memory: memory[0] / memory[1], default=None)


def read_usage(run: RunView, kubectl: Kubectl) -> list[Usage]:
    """Return the resource use of each running pod and of its GPUs, as the pod reports it.

    Raises ClusterError when no pod runs, and when none of them answers.
    """
    pods = [pod for pod in run.pods if pod["status"].get("phase") == "Running"]
    if not pods:
        raise ClusterError(f"no pod of run {run.release.name} runs")
    probe = f"{_PROBE}{_RANKS_PROBE}{_GPU_PROBE}exit 0"
    answers = kubectl.read_each(pods, ["sh", "-c", probe])
    return [parse_probe(pod, text if isinstance(text, str) else "") for pod, text in answers]


def parse_probe(pod: str, text: str) -> Usage:
    """Parse a pod's report; leave out parts that are not understood."""
    usage = Usage(pod)
    readings = []
    for line in text.splitlines():
        words = line.split()
        rank = _RANK_LINE.fullmatch(line)
        gpu = GPU_SAMPLE.fullmatch(line)
        try:
            if rank:
                usage.ranks.setdefault(int(rank[1]), {})[rank[2]] = float(rank[3])
            elif gpu:
                labels = ",".join(gpu.group(2, 3, 4))
                name = gpu[1].removeprefix("hvdchart_gpu_")
                usage.gpus.setdefault(labels, {})[name] = float(gpu[5])
            elif words[:1] == ["cpu"]:
                readings.append((int(words[1]) / 1e6, float(words[2])))
            elif words[:1] == ["memory"]:
                usage.memory = int(words[1])
        except (ValueError, IndexError):
            continue
    if len(readings) == 2:
        (used, at), (used_later, later) = readings
        if later > at:
            usage.cpus = (used_later - used) / (later - at)
    return usage


def usage_table(usages: Sequence[Usage]) -> list[str]:
    """Return a line for each pod, and one for each of its ranks that reports its step.

    If any pod reports a GPU, columns show the lowest and the highest utilization of a pod's GPUs,
    and the memory of the fullest one: used and in all.
    """
    has_gpus = any(usage.gpus for usage in usages)
    of_gpus = ("GPU", "GPU MEMORY") if has_gpus else ()
    rows = [("POD", "CPU", "MEMORY", *of_gpus, "RANK", "STEP", "SAMPLES/S")]
    for usage in usages:
        cpu = "-" if usage.cpus is None else f"{usage.cpus:.2f}"
        memory = "-" if usage.memory is None else f"{usage.memory / 2**20:.0f}Mi"
        cells = (usage.pod, cpu, memory, *(_gpu_cells(usage) if has_gpus else ()))
        ranks = [(str(rank), values) for rank, values in sorted(usage.ranks.items())]
        for rank, values in ranks or [("-", {})]:
            step = f"{values['step']:.0f}" if "step" in values else "-"
            speed = f"{values['samples_per_second']:.1f}" if "samples_per_second" in values else "-"
            rows.append((*cells, rank, step, speed))
            cells = ("",) * len(cells)
    return format_table(rows)


def _gpu_cells(usage: Usage) -> tuple[str, str]:
    memory = "-"
    if usage.gpu_memory:
        used, size = usage.gpu_memory
        memory = f"{used / 2**20:.0f}Mi/{size / 2**20:.0f}Mi"
    return percent_range(usage.gpu_shares) or "-", memory

"""Thread settings to try, the run that tries them, and what came out. Pure.

A setting is an environment of a rank; the first one tried is always the plan's own.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdchart.errors import RunFailedError, SpecError
from hvdchart.plan import rules
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.model import Launch, Spec
from hvdchart.spec.patterns import RELEASE_NAME
from hvdchart.spec.yaml_tree import Plain
from hvdchart.values.render import dump

VARIABLES = {
    "OMP_NUM_THREADS": "ompThreads",
    "TF_NUM_INTRAOP_THREADS": "intraOpThreads",
    "TF_NUM_INTEROP_THREADS": "interOpThreads",
    "KMP_BLOCKTIME": "kmpBlocktime",
}
# Differences below this are noise on a machine that others use too; the plan then stays.
NOISE = 0.02
_HERE = Path(__file__).parent / "in_pod"

Setting = Mapping[str, str]


@dataclass(frozen=True)
class Grid:
    """The values to try; empty: chosen from the plan."""

    omp: Sequence[int] = ()
    intra: Sequence[int] = ()
    inter: Sequence[int] = ()
    kmp_blocktime: Sequence[int] = ()


@dataclass(frozen=True)
class Measured:
    """One setting with its speeds in images/s, one a run; and why runs gave none."""

    setting: Setting
    speeds: tuple[float, ...]
    errors: tuple[str, ...]

    @property
    def speed(self) -> float:
        """The median; 0 when no run gave one."""
        return statistics.median(self.speeds) if self.speeds else 0.0


def settings_of(plan: Plan, grid: Grid) -> list[Setting]:
    """The plan's own setting, then all others of the grid; raises SpecError without cores."""
    group = plan.groups[0]
    if len(plan.groups) != 1:
        raise SpecError("the spec", "nodes", f"{len(plan.groups)} groups", "one, to be tuned")
    cores = rules.cores_per_rank(group.group, group.slots)
    if not cores:
        expected = "coresPerSocket, from which the threads to try follow"
        raise SpecError("the spec", "nodes[0]", "the cores are not said", expected)
    own = {name: value for name, value in group.env.items() if name in VARIABLES}
    threads = group.group.threads_per_core or 1
    tries = {
        "OMP_NUM_THREADS": grid.omp or (cores,),
        "TF_NUM_INTRAOP_THREADS": grid.intra or (cores // 2, cores - 2, cores, cores * threads),
        "TF_NUM_INTEROP_THREADS": grid.inter or (1, 2),
        "KMP_BLOCKTIME": grid.kmp_blocktime,
    }
    axes = [
        [(name, str(value)) for value in sorted(set(values)) if value > 0 or name.startswith("K")]
        for name, values in tries.items()
        if values
    ]
    return [own, *(found for s in itertools.product(*axes) if (found := dict(s)) != own)]


def runs_of(settings: Sequence[Setting], repeats: int) -> list[Setting]:
    """Each setting so many times, in turns: what drifts in a machine then meets all alike."""
    return [setting for _ in range(repeats) for setting in settings]


def tuning_plan(plan: Plan, runs: Sequence[Setting], command: Sequence[str], workers: int) -> Plan:
    """The plan of the run that tries the settings: the spec's own, on so many workers."""
    spec = plan.spec
    job = {"command": list(command), "runs": list(runs)}
    line = ["python3", "-c", (_HERE / "driver.py").read_text("utf-8")]
    # The chart puts the launcher's line there, in the words of the image's own MPI.
    line += [json.dumps(job), "$(LAUNCH)"]
    tuned: Spec = dataclasses.replace(
        spec,
        name=f"{spec.name[: RELEASE_NAME.longest - 5].rstrip('-')}-tune",
        nodes=(dataclasses.replace(spec.nodes[0], count=workers),),
        train=dataclasses.replace(spec.train, command=tuple(line), retries=0),
        launch=Launch(mode="custom", hosts_timeout_seconds=spec.launch.hosts_timeout_seconds),
    )
    # Measured under the plan's own bindings; horovodrun's options are not mpirun's.
    options = plan.launching.options if spec.launch.mode == "mpirun" else ()
    launching = dataclasses.replace(plan.launching, options=options)
    return dataclasses.replace(make_plan(tuned), launching=launching)


def benchmark_command(model: str, batch_size: int, steps: int) -> list[str]:
    """The built-in benchmark as a command for the ranks."""
    script = (_HERE / "benchmark.py").read_text("utf-8")
    words = ["--model", model, "--batch-size", str(batch_size), "--steps", str(steps)]
    return ["python3", "-c", script, *words]


def result_in(line: str) -> tuple[int, float | None, str] | None:
    """(run, speed, error) of a log line of the driver; None for any other line."""
    if not line.startswith("TUNE {"):
        return None
    found = json.loads(line.removeprefix("TUNE "))
    return found["run"], found["speed"], found["error"]


def collected(
    settings: Sequence[Setting], results: Sequence[tuple[int, float | None, str]]
) -> list[Measured]:
    """The results by setting, in the settings' order."""
    speeds: list[list[float]] = [[] for _ in settings]
    errors: list[list[str]] = [[] for _ in settings]
    for run, speed, error in results:
        if speed is None:
            errors[run % len(settings)].append(error)
        else:
            speeds[run % len(settings)].append(speed)
    return [
        Measured(setting, tuple(speeds[index]), tuple(errors[index]))
        for index, setting in enumerate(settings)
    ]


def rivals_of(measured: Sequence[Measured], most: int = 2) -> list[Setting]:
    """The settings that looked faster than the plan's own, fastest first, at most so many.

    The best of many noisy medians flatters itself: rivals are measured again, beside the plan.
    Raises RunFailedError when no setting gave a speed.
    """
    if not any(found.speed for found in measured):
        errors = [error for found in measured for error in found.errors]
        raise RunFailedError(
            f"no run printed a speed; the first said: {(errors or ['nothing'])[0]}"
        )
    own, *others = measured
    faster = sorted(
        (found for found in others if found.speed > own.speed), key=lambda found: -found.speed
    )
    return [found.setting for found in faster[:most]]


def gain(own: Measured, rival: Measured) -> float:
    """How much faster a rival is, as a share: the median over turns of the two runs of a turn."""
    if not own.speeds or not rival.speeds:
        return float("inf") if rival.speeds else 0.0
    pairs = zip(own.speeds, rival.speeds, strict=False)
    return statistics.median(theirs / ours for ours, theirs in pairs) - 1


def best_of(again: Sequence[Measured]) -> Measured:
    """Of the plan's own setting and its rivals, measured in turns: the fastest, or the plan's own
    when none beats it by more than NOISE.
    """
    own = again[0]
    best = max(again, key=lambda found: gain(own, found))
    return best if gain(own, best) > NOISE else own


@dataclass(frozen=True)
class Search:
    """All settings measured, and the plan's own measured `again` with its rivals."""

    measured: Sequence[Measured]
    again: Sequence[Measured]


def tuning_text(search: Search, name: str) -> str:
    """A spec overlay with the best setting's `tuning`, and all measurements as comments."""
    head = [f"Measured by `python -m hvdchart tune {name}`, images/s, the plan's own first:"]
    head += [f"  {described(found)}" for found in search.measured]
    own, *rivals = search.again
    if rivals:
        head.append("Those ahead of the plan once more, in turns with it:")
        head += [f"  {described(found)}" for found in search.again]
    best = best_of(search.again)
    if best is own:
        head.append(f"Nothing beat the plan by more than {NOISE:.0%}: its own numbers stand.")
    elif own.speed:
        head.append(f"The best is {gain(own, best):+.1%} on the plan.")
    tuning: dict[str, Plain] = {
        VARIABLES[variable]: int(value) for variable, value in best.setting.items()
    }
    comments = "".join(f"# {line}\n" for line in head)
    return comments + dump({"tuning": tuning}, {})


def described(found: Measured) -> str:
    """One line: the speed, its spread, and the setting."""
    words = " ".join(f"{name}={value}" for name, value in found.setting.items())
    if not found.speeds:
        last = (found.errors or ("not run",))[-1]
        return f"{'failed':>9}  {words}: {' '.join(last.split())[-200:]}"
    spread = f" ({min(found.speeds):.2f} to {max(found.speeds):.2f})" if found.speeds[1:] else ""
    return f"{found.speed:>9.2f}  {words}{spread}"

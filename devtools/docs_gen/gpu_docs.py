"""Write the results of the runs on a GPU into docs/gpus.md, from devtools/gpus/figures.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from devtools.docs_gen.generated import replace_sections, table, wrap
from images.builder.catalogue import ROOT

PAGE = ROOT / "docs" / "gpus.md"
# The results that `python3 -m devtools.gpus` writes on the machine.
FIGURES = ROOT / "devtools" / "gpus" / "figures.json"
LOST = "a rank is killed three times, keep, warm ranks"


def measured(figures: dict[str, Any]) -> str:
    """Return the machine, and a table of the results of each stage."""
    machine = figures["machine"]
    gpu = machine["gpus"][0]
    stages = figures["stages"]
    days = sorted({stage["day"] for stage in stages.values()})
    place = wrap(
        f"Measured on {' and '.join(days)}: one {gpu['name']} (driver {gpu['driver_version']}), "
        f"{machine['cpus']} CPUs, Python {machine['python']}, PyTorch {machine['torch']}, NCCL "
        f"{machine['nccl']}. Horovod was compiled on that machine, with the patches of "
        "`pytorch-cuda`; no image has run there."
    )
    rows = [
        ("Operations", operations(stages)),
        ("Two ranks on one GPU", two_ranks(stages)),
        ("JPEGs in place of synthetic images", data(stages["data"]["result"])),
        ("`keep`, a killed rank", keep_restored(stages["keep-restored"]["result"])),
        ("Warm ranks", warm(stages["warm"]["result"])),
        *cluster(stages["cluster"]["result"]),
    ]
    left = [
        f"`{name}` (exit code {stage['exit']} after {stage['seconds']:.0f} s)"
        for name, stage in stages.items()
        if stage["exit"]
    ]
    more = wrap(f"These stages did not end with 0: {', '.join(left)}.") if left else ""
    tables = (table(("What", "Result"), rows), throughput(stages), keep_costs(stages))
    return "\n\n".join(filter(None, (place, *tables, more)))


def operations(stages: dict[str, Any]) -> str:
    over = []
    for name in ("operations", "operations-gloo"):
        result = stages[name]["result"]
        failed = f", failed: {', '.join(result['failed'])}" if result["failed"] else ""
        over.append(f"{result['passed']} checks passed{failed} ({result['controller']})")
    took = stages["operations"]["result"]["milliseconds of an allreduce by bytes"]
    sizes = ", ".join(f"{took[size]} ms for {int(size):,} bytes" for size in took)
    return f"{'; '.join(over)}. An allreduce of one rank: {sizes}"


def two_ranks(stages: dict[str, Any]) -> str:
    same = stages["two-ranks-same-gpu"]["result"]["rank 1 saw"]
    own_gpu = stages["two-ranks-own-gpu"]["result"]["rank 1 saw"].partition("\n")[0]
    return f"fails: `{same}`; where rank 1 asks for a GPU of its own, `{own_gpu}`"


def throughput(stages: dict[str, Any]) -> str:
    """Return the images/s of each way to train, with their range and what they cost."""
    rows = {
        f"{batch}{more}": {way: rate(measured) for way, measured in by_way.items()}
        for stage, more in (
            ("throughput", ""),
            ("throughput-waiting", ", each step waits for the GPU"),
        )
        for batch, by_way in stages[stage]["result"].items()
    }
    ways = list(dict.fromkeys(way for by_way in rows.values() for way in by_way))
    names = ({"plain": "plain PyTorch"}.get(way, way) for way in ways)
    return table(
        ("ResNet-50, images/s", *names),
        ((name, *(by_way.get(way, "") for way in ways)) for name, by_way in rows.items()),
    )


def rate(measured: dict[str, Any]) -> str:
    low, high = measured["range"]
    cost = measured["cost beside plain"]["percent"]
    beside = f", {cost:.0f} % less" if cost else ""
    return f"{measured['images per second']:,} ({low:,} to {high:,}){beside}"


def data(result: dict[str, Any]) -> str:
    ways = {
        "JPEGs": f"{result['processes of the loader']} processes of the loader decode",
        "JPEGs, GPU decodes": "the GPU decodes",
        "JPEGs, both decode": "these processes decode two of three batches, and the GPU the third",
    }
    texts = []
    for way, who in ways.items():
        if way in result["gap in percent"]:
            alone = result["alone"].get(way)
            rate = f" ({alone:,.0f} images/s while nothing trains)" if alone else ""
            texts.append(f"{result['gap in percent'][way]:.0f} % slower where {who}{rate}")
    return "; ".join(texts)


def keep_costs(stages: dict[str, Any]) -> str:
    """Return what a commit holds the training for, and what it costs of the throughput."""
    rows = []
    for name, result in stages["keep-cost"]["result"].items():
        step = result["milliseconds of a step"]["none"]
        cost = (
            f"{each['percent']:.1f} % ({each['range'][0]:.1f} to {each['range'][1]:.1f})"
            for each in (result["cost"]["each step"], result["cost"]["each tenth step"])
        )
        size = f"{result['tensors']} tensors, {result['megabytes']:.0f} MB"
        rows.append((name, size, f"{result['milliseconds of a call']} of {step}", *cost))
    head = ("A commit holds a step, ms", "Throughput lost", "by committing each tenth step")
    return table(("`keep`", "State", *head), rows)


def keep_restored(result: dict[str, Any]) -> str:
    is_exact = all(one["ended as the training that nobody killed"] for one in result.values())
    end = "ends bit for bit as the one that nobody killed" if is_exact else "ends otherwise"
    names = " and with ".join(result)
    return f"the training with {names} continues after the last commit, and {end}"


def warm(result: dict[str, Any]) -> str:
    total = "start to first allreduce"
    return (
        f"{result['warm'][total]:.2f} s from the start to the first allreduce on the GPU, cold "
        f"{result['cold'][total]:.2f} s; the waiting process has "
        f"{result['memory while the warm process waits']} of the GPU; a killed rank's memory is "
        f"free after {result['seconds until the memory is free']} s"
    )


def cluster(runs: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the runs of the chart that the stage reached and that did not fail."""
    rows = []
    for name in ("direct", "direct, warm ranks", "mpirun", "JAX", "DistributedDataParallel"):
        run = runs.get(name)
        if not isinstance(run, dict):
            continue
        text = f"`helm install` {run['helm install']} s, {run['seconds to the end']} s to the end"
        if name == "JAX":
            first, last = run["result"]["loss"]
            text += f"; loss {first} to {last} on {run['result']['device']}"
        rows.append((f"The chart with `nvidia.com/gpu: 1`, {name}", text))
    lost = runs.get(LOST)
    if isinstance(lost, dict):
        times = ", ".join(f"{kill:.1f}" for kill in lost["result"]["seconds to the next step"])
        text = f"{times} s from a kill to the end of the next step"
        rows.append(("The chart, a rank killed three times", text))
    return rows


def generated_texts() -> dict[Path, str]:
    section = measured(json.loads(FIGURES.read_text("utf-8")))
    return {PAGE: replace_sections(PAGE, {"figures of a GPU": section})}

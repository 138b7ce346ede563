"""The metrics by which a script tells its progress, as master and workers read them."""

from __future__ import annotations

from typing import Any, Dict, Iterable

from hvd_pods.common.metrics import parse_samples

NAMES = {
    "horovod_step": "step",
    "horovod_steps": "steps",
    "horovod_loss": "loss",
    "horovod_images_per_second": "imagesPerSecond",
    "horovod_size": "size",
}
# Characters of a number. No count is larger: floats are exact up to here.
LONGEST_NUMBER, LARGEST_COUNT = 40, 1 << 53
ReportedProgress = Dict[str, Any]


def select_samples(text: str) -> list[str]:
    """The samples of a rank's file that tell its progress."""
    pairs = (sample.rsplit(maxsplit=1) for sample in parse_samples(text)[0])
    return [
        f"{name} {value}" for name, value in pairs if name in NAMES and len(value) < LONGEST_NUMBER
    ]


def parse_progress(samples: Iterable[str]) -> ReportedProgress:
    """The numbers by name; empty without a step.

    A loss that is not finite is worth knowing, and is a string, because JSON has no such number.
    """
    told: ReportedProgress = {}
    for sample in samples:
        series, value = sample.split()
        name, number = NAMES[series], float(value)
        is_finite = abs(number) < float("inf")
        if name == "loss":
            told[name] = number if is_finite else str(number)
        elif name == "imagesPerSecond" and is_finite:
            told[name] = number
        elif name != "imagesPerSecond" and 0 <= number <= LARGEST_COUNT:
            told[name] = int(number)
    return told if "step" in told else {}

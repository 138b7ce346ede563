"""Carries over what a container of a migrated file is: its image and its resources. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hvdchart.chart_files import is_gpu
from hvdchart.migrate.ledger import Ledger, NewPath
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import split_image


def carry_over_image(ledger: Ledger, old: KeyPath, new: NewPath) -> None:
    """An image reference -> the chart's repository, tag and digest at `new`."""
    parts = split_image(ledger.text_at(*old))
    if "repository" not in parts:
        raise ledger.type_error(old, "the name of an image")
    for key, value in parts.items():
        ledger.put((*new, key), value, old)
    ledger.change(old, new, f"split into {' and '.join(parts)}")


def carry_over_one_image(ledger: Ledger, old: KeyPath, policy: KeyPath) -> None:
    """The image and the pull policy of a file with one image for all pods."""
    if ledger.text_at(*old):
        carry_over_image(ledger, old, ("image",))
    else:
        ledger.drop(old, "an empty value sets nothing")
        ledger.add_check("the file names no image: set image.repository and image.tag")
    ledger.carry_over(policy, ("image", "pullPolicy"))


def count_gpus(resources: Plain) -> int | None:
    """The GPUs that a container limits or requests; None without any."""
    for part in ("limits", "requests"):
        amounts = resources.get(part) if isinstance(resources, Mapping) else None
        for name, count in amounts.items() if isinstance(amounts, Mapping) else ():
            if is_gpu(name) and str(count).isdecimal() and 0 < int(count) < 10**6:
                return int(count)
    return None


def carry_over_resources(ledger: Ledger, old: KeyPath) -> int | None:
    """The workers' resources; returns their number of GPUs, None without any."""
    ledger.carry_over(old, ("worker", "resources"))
    return count_gpus(ledger.value_at(*old))

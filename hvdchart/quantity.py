"""Kubernetes quantities: CPUs as whole thousandths, memory as whole bytes.

Source of the format: Kubernetes API reference, "Quantity".
"""

from __future__ import annotations

import re
from fractions import Fraction

MI = 1024**2
GI = 1024**3
_SCALES: dict[str, Fraction | int] = {
    "n": Fraction(1, 1000**3),
    "u": Fraction(1, 1000**2),
    "m": Fraction(1, 1000),
    "": 1,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "T": 1000**4,
    "P": 1000**5,
    "E": 1000**6,
    "Ki": 1024,
    "Mi": MI,
    "Gi": GI,
    "Ti": 1024**4,
    "Pi": 1024**5,
    "Ei": 1024**6,
}
# The pattern has no sign: no resource of a node, a pod or a spec is negative.
_QUANTITY = re.compile(
    r"(?P<number>[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})"
    rf"(?:[eE](?P<exponent>[-+]?[0-9]{{1,2}})|(?P<suffix>{'|'.join(_SCALES)}))"
)


def parse_quantity(text: str) -> Fraction:
    """Return the exact number of a quantity such as 1.5Gi, 500m or 1e3.

    Raises ValueError for any other text.
    """
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        return number * Fraction(f"1e{match['exponent']}")
    return number * _SCALES[match["suffix"]]


def memory_bytes(text: str) -> int:
    """Return the bytes in a quantity such as 384Gi or 1.5G, rounded down.

    Raises ValueError for any other text. Also refuses suffixes of fractions: Kubernetes reads 128m
    as 0.128 bytes, where the user meant 128M.
    """
    if text.endswith(("n", "u", "m")):
        raise ValueError(f"{text!r} is a fraction of a byte")
    return int(parse_quantity(text))


def cpu_millis(text: str) -> int:
    """Return the thousandths of a CPU in a quantity such as 2, 1.5 or 500m.

    Raises ValueError for any other text, and for a fraction of a thousandth, which Kubernetes
    refuses in resources.
    """
    millis = parse_quantity(text) * 1000
    if millis.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of thousandths of a CPU")
    return int(millis)


def cpu_text(millis: int) -> str:
    """Return the shortest quantity for thousandths of a CPU: 2000 -> 2, 500 -> 500m."""
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def memory_text(size: int) -> str:
    """Return the quantity for a number of bytes, in Gi or Mi if that is exact, else in bytes."""
    for unit, scale in (("Gi", GI), ("Mi", MI)):
        if size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def amount_text(resource: str, amount: int) -> str:
    """Return the quantity of a resource.

    `amount` is in thousandths of a CPU, bytes, or whole devices.
    """
    if resource == "cpu":
        return cpu_text(amount)
    if resource == "memory":
        return memory_text(amount)
    return str(amount)


def room_text(resource: str, amount: int) -> str:
    """Format the free amount of a resource as `amount_text` does: memory in whole Mi, at least 0.

    The amount is rounded down, so that a request of the shown amount fits.
    """
    unit = MI if resource == "memory" else 1
    return amount_text(resource, max(amount, 0) // unit * unit)


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: 1 rank, 2 ranks."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

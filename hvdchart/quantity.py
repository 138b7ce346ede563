"""Kubernetes quantities: CPUs as whole thousandths, memory as whole bytes.

Source of the suffixes: Kubernetes API reference, "Quantity".
"""

from __future__ import annotations

import re
from fractions import Fraction

MI = 1024**2
GI = 1024**3
_SCALES = {
    "": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "P": 1000**5,
    "Ki": 1024, "Mi": MI, "Gi": GI, "Ti": 1024**4, "Pi": 1024**5,
}  # fmt: skip
_MEMORY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|)")
_CPU = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(m|)")


def memory_bytes(text: str) -> int:
    """Bytes in a quantity such as 384Gi or 1.5G; raises ValueError for anything else."""
    match = _MEMORY.fullmatch(text)
    if not match:
        raise ValueError(text)
    return int(Fraction(match[1]) * _SCALES[match[2]])


def cpu_millis(text: str) -> int:
    """Thousandths of a CPU in a quantity such as 2, 1.5 or 500m; raises ValueError otherwise."""
    match = _CPU.fullmatch(text)
    if not match or (match[2] and "." in match[1]):
        raise ValueError(text)
    return int(Fraction(match[1]) * (1 if match[2] else 1000))


def cpu_text(millis: int) -> str:
    """The shortest quantity for so many thousandths of a CPU: 2000 -> 2, 500 -> 500m."""
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def memory_text(size: int) -> str:
    """The quantity for so many bytes, in Gi or Mi when that is exact, else in bytes."""
    for unit, scale in (("Gi", GI), ("Mi", MI)):
        if size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def counted(number: int, noun: str) -> str:
    """1 rank, 2 ranks."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""Kubernetes quantities: read, refused and written back."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from hvdchart.quantity import (
    GI,
    MI,
    cpu_millis,
    cpu_text,
    memory_bytes,
    memory_text,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        *(
            (parse_quantity, text, "is not a Kubernetes quantity")
            for text in (
                "",
                "-1",
                "Gi",
                "1 Gi",
                "1ki",
                "1mi",
                "1Q",
                "1e",
                "1e3k",
                "1.2.3",
                "nan",
                "0x1",
                "1\n",
            )
        ),
        *((memory_bytes, text, "fraction of a byte") for text in ("128m", "128u", "128n")),
        *((cpu_millis, text, "whole number of thousandths") for text in ("0.0001", "1.5m", "1u")),
    ],
)
def test_other_texts_are_refused(read: Callable[[str], object], text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text)


def test_quantities_are_read_and_written_in_the_shortest_exact_form() -> None:
    read = {
        "1.5Gi": 3 * GI // 2,
        "12e6": 12_000_000,
        "1E-3": Fraction(1, 1000),
        "5.": 5,
        "1E": 10**18,
        "7n": Fraction(7, 10**9),
        "3u": Fraction(3, 10**6),
        "2m": Fraction(1, 500),
        ".5k": 500,
        "1M": 10**6,
        "2G": 2 * 10**9,
        "1T": 10**12,
        "1P": 10**15,
        "1Ki": 1024,
        "1Mi": MI,
        "1Ti": 2**40,
        "1Pi": 2**50,
        "1Ei": 2**60,
    }
    assert {text: parse_quantity(text) for text in read} == read
    assert [cpu_text(millis) for millis in (2000, 500, 2500, 0)] == ["2", "500m", "2500m", "0"]
    sizes = (2 * GI, 3 * MI, GI + MI, 1000)
    assert [memory_text(size) for size in sizes] == ["2Gi", "3Mi", "1025Mi", "1000"]
    assert (memory_bytes("1.9"), cpu_millis("1.5")) == (1, 1500)

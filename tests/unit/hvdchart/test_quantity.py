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
            (parse_quantity, text, "quantity")
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
        *((memory_bytes, text, "byte") for text in ("128m", "128u", "128n")),
        *((cpu_millis, text, "thousandths") for text in ("0.0001", "1.5m", "1u")),
    ],
)
def test_other_texts_are_refused(read: Callable[[str], object], text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1.5Gi", 3 * GI // 2),
        ("12e6", 12_000_000),
        ("1E-3", Fraction(1, 1000)),
        ("5.", 5),
        ("1E", 10**18),
        ("7n", Fraction(7, 10**9)),
        ("3u", Fraction(3, 10**6)),
        ("2m", Fraction(1, 500)),
        (".5k", 500),
        ("1M", 10**6),
        ("2G", 2 * 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1Ki", 1024),
        ("1Mi", MI),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
    ],
)
def test_quantity_is_read_exactly(text: str, amount: Fraction | int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    ("millis", "text"), [(2000, "2"), (500, "500m"), (2500, "2500m"), (0, "0")]
)
def test_number_of_cpus_is_written_in_the_shortest_exact_form(millis: int, text: str) -> None:
    assert cpu_text(millis) == text


@pytest.mark.parametrize(
    ("size", "text"), [(2 * GI, "2Gi"), (3 * MI, "3Mi"), (GI + MI, "1025Mi"), (1000, "1000")]
)
def test_amount_of_memory_is_written_in_the_shortest_exact_form(size: int, text: str) -> None:
    assert memory_text(size) == text


def test_fraction_of_a_byte_is_rounded_down() -> None:
    assert memory_bytes("1.9") == 1


def test_number_of_cpus_is_read_in_thousandths() -> None:
    assert cpu_millis("1.5") == 1500

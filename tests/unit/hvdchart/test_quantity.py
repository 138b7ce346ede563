"""Kubernetes quantities: read as the Kubernetes client reads them, and written back."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils import quantity as client

from hvdchart.quantity import (
    GI,
    MI,
    cpu_millis,
    cpu_text,
    memory_bytes,
    memory_text,
    parse_quantity,
)

reference: Callable[[str], Decimal] = client.parse_quantity
SUFFIXES = ["", *"numkMGTPE", *(f"{letter}i" for letter in "KMGTPE")]
# The client computes with 28 digits, of which 1024**6 takes 19.
DIGITS = st.text("0123456789", min_size=1, max_size=4)
NUMBERS = DIGITS | st.builds("{}.{}".format, DIGITS, DIGITS) | st.builds(".{}".format, DIGITS)
EXPONENTS = st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-9, 12))


@pytest.mark.slow
@given(st.builds("{}{}".format, NUMBERS, st.sampled_from(SUFFIXES) | EXPONENTS))
def test_parse_quantity_agrees_with_the_kubernetes_client(text: str) -> None:
    assert parse_quantity(text) == Fraction(reference(text))


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        *((parse_quantity, text, "is not a Kubernetes quantity") for text in (
            "", "-1", "Gi", "1 Gi", "1ki", "1mi", "1Q", "1e", "1e3k", "1.2.3", "nan", "0x1", "1\n"
        )),
        *((memory_bytes, text, "fraction of a byte") for text in ("128m", "128u", "128n")),
        *((cpu_millis, text, "whole number of thousandths") for text in ("0.0001", "1.5m", "1u")),
    ],
)  # fmt: skip
def test_other_texts_are_refused(read: Callable[[str], object], text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text)


def test_quantities_are_written_in_the_shortest_exact_form() -> None:
    assert [cpu_text(millis) for millis in (2000, 500, 2500, 0)] == ["2", "500m", "2500m", "0"]
    sizes = (2 * GI, 3 * MI, GI + MI, 1000)
    assert [memory_text(size) for size in sizes] == ["2Gi", "3Mi", "1025Mi", "1000"]
    assert (memory_bytes("1.9"), cpu_millis("1.5")) == (1, 1500)

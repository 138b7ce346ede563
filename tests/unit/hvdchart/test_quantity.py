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
    "text", ["", "-1", "Gi", "1 Gi", "1ki", "1mi", "1Q", "1e", "1e3k", "1.2.3", "nan", "0x1", "1\n"]
)
def test_parse_quantity_refuses_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["128m", "128u", "128n"])
def test_memory_refuses_fractional_suffixes(text: str) -> None:
    with pytest.raises(ValueError, match="fraction of a byte"):
        memory_bytes(text)


@pytest.mark.parametrize("text", ["0.0001", "1.5m", "1u"])
def test_cpu_refuses_fractions_of_a_thousandth(text: str) -> None:
    with pytest.raises(ValueError, match="whole number of thousandths"):
        cpu_millis(text)


@pytest.mark.parametrize(
    ("millis", "text"), [(2000, "2"), (500, "500m"), (2500, "2500m"), (0, "0")]
)
def test_cpu_is_written_in_the_shortest_form(millis: int, text: str) -> None:
    assert cpu_text(millis) == text


@pytest.mark.parametrize(
    ("size", "text"), [(2 * GI, "2Gi"), (3 * MI, "3Mi"), (GI + MI, "1025Mi"), (1000, "1000")]
)
def test_memory_is_written_in_the_largest_exact_unit(size: int, text: str) -> None:
    assert memory_text(size) == text

"""The drawings of benchmarks: what they show of the figures."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from hvdchart.bench.scaling import mean_and_interval
from tests.bench.drawing import ACTIVITIES, Span, curves, short, spans, steps_of, timeline
from tests.bench.unet_pictures import count_transfers, read_checks

SPACE = "{http://www.w3.org/2000/svg}"


def parse(picture: str) -> ElementTree.Element:
    """A picture that is well-formed; we have made it ourselves."""
    return ElementTree.fromstring(picture)  # noqa: S314


def step(tensor: int, at: int) -> list[dict[str, Any]]:
    """A tensor's events in one step, as Horovod 0.28 writes them."""
    activities = ("MEMCPY_IN_FUSION_BUFFER", "MPI_ALLREDUCE", "MEMCPY_OUT_FUSION_BUFFER")
    events = [
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": at, "pid": tensor},
        {"ph": "X", "name": "1", "ts": at + 3, "pid": tensor, "dur": 0},
        {"ph": "E", "ts": at + 5, "pid": tensor},
        {"ph": "B", "name": "ALLREDUCE", "ts": at + 6, "pid": tensor},
    ]
    for number, activity in enumerate(activities):
        begin = at + 10 * (number + 1)
        events += [
            {"ph": "B", "name": activity, "ts": begin, "pid": tensor},
            {"ph": "E", "ts": begin + 10, "pid": tensor},
        ]
    return [*events, {"ph": "E", "ts": at + 45, "pid": tensor}]


def named(tensor: int, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": tensor, "args": {"name": name}}


EVENTS = [
    named(1, "Distributed/grads_7_0"),
    named(2, "Distributed/grads_3_0"),
    named(3, "norm"),
    *(event for at in (0, 1000, 2000) for n in (1, 2, 3) for event in step(n, at + n)),
]


def test_spans_are_the_innermost_activities() -> None:
    of_norm = [span for span in spans(EVENTS) if span.tensor == "norm"]
    assert [(s.activity, round(1e6 * s.begin), round(1e6 * s.end)) for s in of_norm[:4]] == [
        ("NEGOTIATE_ALLREDUCE", 3, 8),
        ("MEMCPY_IN_FUSION_BUFFER", 13, 23),
        ("MPI_ALLREDUCE", 23, 33),
        ("MEMCPY_OUT_FUSION_BUFFER", 33, 43),
    ]


def test_step_has_one_allreduce_of_each_gradient() -> None:
    steps = steps_of(spans(EVENTS), "grads_")
    assert [len(each) for each in steps] == [8, 8, 8]
    assert {span.tensor for span in steps[1]} == {"Distributed/grads_7_0", "Distributed/grads_3_0"}
    assert min(span.begin for span in steps[1]) == pytest.approx(0.001001)
    assert steps_of([], "grads_") == []


def test_fused_tensors_are_one_transfer() -> None:
    one = [Span(name, "MPI_ALLREDUCE", begin, 1.0) for name, begin in (("a", 0.1), ("b", 0.2))]
    assert count_transfers(one) == 1
    assert count_transfers([*one, Span("c", "GLOO_ALLREDUCE", 1.0, 2.0)]) == 2


def test_timeline_has_a_row_for_each_tensor_and_a_bar_for_each_activity() -> None:
    (first, *_) = steps_of(spans(EVENTS), "grads_")
    tree = parse(timeline("a < b", first))
    texts = [text.text for text in tree.iter(f"{SPACE}text")]
    assert texts[0] == "a < b"
    assert [text for text in texts if text and text.startswith("gradient")] == [
        "gradient 7", "gradient 3",
    ]  # fmt: skip
    colours = [bar.get("fill") for bar in tree.iter(f"{SPACE}rect") if bar.get("height") == "9"]
    assert colours.count(ACTIVITIES["MEMCPY"][1]) == 4
    assert colours.count(ACTIVITIES["ALLREDUCE"][1]) == 2
    assert colours.count(ACTIVITIES["NEGOTIATE"][1]) == 2


def test_tensors_have_short_names() -> None:
    assert short("tape/cond/HorovodAllreduce_grads_12_0") == "gradient 12"
    keras = "cond_42/HorovodAllreduce_gradient_tape_functional_1_conv2d_17_1"
    assert short(f"{keras}_convolution_Conv2DBackpropFilter_0") == "conv2d_17 kernel"
    assert short(f"{keras}_Reshape_1_0") == "conv2d_17 bias"
    assert short("broadcast/kernel") == "kernel"


def test_curves_are_those_of_the_log() -> None:
    lines = ["training from the start", "step 25 of 50: loss 0.5000, dice 0.2500", "RESULT {}"]
    checks = read_checks([*lines, "step 50 of 50: loss 0.2500, dice 0.7500"])
    assert checks == {"loss": [(25, 0.5), (50, 0.25)], "dice": [(25, 0.25), (50, 0.75)]}
    tree = parse(curves("title", "steps", checks))
    drawn = [path.get("d", "") for path in tree.iter(f"{SPACE}path") if path.get("fill")]
    assert len(drawn) == 2
    loss, dice = ([float(n) for n in re.findall(r"[\d.]+", path)] for path in drawn)
    # Further right is later; further down is less.
    assert loss[0] < loss[2]
    assert loss[1] < loss[3]
    assert dice[1] > dice[3]


def test_interval_is_students() -> None:
    # The quantile for four degrees of freedom is 2.776, the deviation 1.5811.
    assert mean_and_interval([1, 2, 3, 4, 5])[1] == pytest.approx(2.776 * 1.5811 / 5**0.5, rel=0.02)


def test_bar_of_no_length_is_seen() -> None:
    picture = timeline("", [Span("t", "QUEUE", 0, 0.0), Span("t", "MPI_ALLREDUCE", 0, 1)])
    assert 'width="0.5" height="9"' in picture

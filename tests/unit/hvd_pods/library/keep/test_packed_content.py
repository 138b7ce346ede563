"""What a packed state holds, made anew or with the layout of an earlier commit."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import pytest

from hvd_pods.library.keep.arrays import from_bytes
from hvd_pods.library.keep.packed_content import LEAF_TEXT, FrozenDict, PackedContent
from hvd_pods.library.keep.packed_state import StepKey, pack, read_packed
from tests.support.fakes import pytorch


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytorch.Gpu:
    gpu = pytorch.Gpu()
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    return gpu


def described(content: PackedContent) -> Any:
    parts = [(at, bytes(data)) for at, data in content.parts]
    return content.description, parts, content.places, content.size


@pytest.mark.parametrize(
    "later",
    [
        {"step": 12, "rate": float("nan")},
        {"step": True, "rate": 1.0},
        {"step": 1, "rate": LEAF_TEXT},
        {"step": 1, "rate": 1, "more": [b"bytes"]},
        {"step": 1, "weights": 2},
        {"rate": 1, "step": 1},
    ],
)
def test_a_later_value_is_described_as_without_an_earlier_one(
    gpu: pytorch.Gpu, later: dict[str, Any]
) -> None:
    weights = {"weights": gpu.tensor(b"four"), "count": gpu.tensor(b"1", "cpu"), "raw": b"raw"}
    before = PackedContent({**weights, "step": 1, "rate": 1}).layout
    value = {**weights, **later}
    assert described(PackedContent(value, before)) == described(PackedContent(value))


def test_the_layout_stays_while_leaves_have_the_same_form(gpu: pytorch.Gpu) -> None:
    before = PackedContent({"step": 1, "weights": gpu.tensor(b"four")}).layout
    after = PackedContent({"step": 2, "weights": gpu.tensor(b"FOUR")}, before).layout
    assert after.forms is before.forms


def test_keys_may_be_bytes(gpu: pytorch.Gpu) -> None:
    value = {b"key": b"value", ("pair", b"of key"): b"other"}
    assert read_packed("here", memoryview(pack(StepKey(0, 1), value))).value == value


def test_a_tensor_of_another_device_is_copied_at_each_commit(gpu: pytorch.Gpu) -> None:
    momentum = gpu.tensor(b"1", "xpu:0")
    before = PackedContent([momentum]).layout
    before = PackedContent([momentum], before).layout
    momentum.data[:] = b"2"
    assert bytes(PackedContent([momentum], before).parts[0][1]) == b"2"


def test_a_tensor_that_came_once_is_not_held(gpu: pytorch.Gpu) -> None:
    tensor = gpu.tensor(b"1", "cpu")
    layout = PackedContent([tensor]).layout
    alive = weakref.ref(tensor)
    del tensor
    assert (alive(), len(layout.seen)) == (None, 1)


def test_arrays_of_another_size_leave_tensors_where_they_are(gpu: pytorch.Gpu) -> None:
    """So that the snapshot on the GPU is made once."""
    tensors = {"weights": gpu.tensor(b"four"), "bias": gpu.tensor(b"b")}
    before = PackedContent({"history": b"1", **tensors}).layout
    after = PackedContent({"history": b"1" * 1000, **tensors}, before).layout
    assert after.on_gpu == before.on_gpu


def test_a_tensor_of_the_cpu_is_read_where_it_is_now(gpu: pytorch.Gpu) -> None:
    count = gpu.tensor(b"1", "cpu")
    count.cpu = lambda: count  # type: ignore[method-assign]
    before = PackedContent([count], PackedContent([count]).layout).layout
    count.data[:] = b"2"
    assert bytes(PackedContent([count], before).parts[0][1]) == b"2"
    count.data = memoryview(bytearray(b"3"))
    assert bytes(PackedContent([count], before).parts[0][1]) == b"3"


def test_a_dict_that_nobody_changes_is_described_as_any_other(gpu: pytorch.Gpu) -> None:
    tensors = {"one": gpu.tensor(b"1"), "two": {"deep": gpu.tensor(b"2", "cpu")}}
    fixed = FrozenDict(tensors)
    number = '{"fixed":0}'
    plain = described(PackedContent({"first": number, "a": tensors, "b": tensors, "last": number}))
    parts = {"first": number, "a": fixed, "b": fixed, "last": number}
    content = PackedContent(parts, None)
    again = PackedContent(parts, content.layout)
    assert [described(content), described(again)] == [plain] * 2


@pytest.mark.parametrize("order", [[0, 0], [0, 2], [0], [0, 1, 2], [-1, 0]])
def test_an_order_that_does_not_fit_is_refused(order: list[int]) -> None:
    with pytest.raises(ValueError, match="order"):
        from_bytes("<f4", [2, 2], memoryview(bytes(16)), order)

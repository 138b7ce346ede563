"""Arrays of JAX in a state, and trees of them."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep import parts
from hvd_pods.library.keep import shard_parts as shards
from hvd_pods.worker import save_states
from tests.support.fakes.jax import Array, Node, Pair, Plain, jax
from tests.unit.hvd_pods.library.keep.scripts import resume, train


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that has imported JAX, and called jax.distributed.initialize()."""
    monkeypatch.setitem(sys.modules, "jax", jax())


def record_of(part: Any) -> Any:
    """What is read from a packed state of a part."""

    def go(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: go(child) for key, child in tree.items()}
        if isinstance(tree, (list, tuple)):
            made = [go(child) for child in tree]
            return made if isinstance(tree, list) else tuple(made)
        return tree.kept() if isinstance(tree, Array) else tree

    return go(parts.read_part(part, []))


def fits(kept: Any, part: Any) -> bool:
    """Whether a part is given what was kept."""
    tree = record_of(kept)
    return bool(parts.form_of(part, parts.read_part(part, [])) == parts.form_of(part, tree))


@pytest.mark.parametrize(
    ("kept", "part"),
    [
        pytest.param(Array(1, 2, spec=("x",)), Array(0, 0, spec=("x",)), id="an array"),
        pytest.param({"a": Array(1), 2: [3]}, {"a": Array(0), 2: [0]}, id="keys of two types"),
        pytest.param(
            OrderedDict(b=Array(1), a=Array(2)),
            OrderedDict(b=Array(0), a=Array(0)),
            id="a dict of another type",
        ),
        pytest.param(
            (Pair(3, {"w": Array(1, spec=("x",))}), [Array(2)]),
            (Pair(0, {"w": Array(0, spec=("x",))}), [Array(0)]),
            id="named tuples",
        ),
        pytest.param(Node(Array(1)), Node(Array(0)), id="a registered type"),
    ],
)
def test_a_tree_comes_back_as_the_script_has_made_it(kept: Any, part: Any) -> None:
    assert fits(kept, part)
    assert repr(parts.write_part(part, record_of(kept))) == repr(kept)


@pytest.mark.parametrize(
    ("made", "later", "restored"),
    [
        pytest.param({}, {"loss": Array(1)}, {"loss": Plain(1)}, id="in a dict"),
        pytest.param([Array(0)], [Array(1), Array(2)], [Array(1), Plain(2)], id="in a list"),
        pytest.param(None, Array(1), Plain(1), id="an array"),
        pytest.param(None, [{"w": Array(1)}], [{"w": Plain(1)}], id="a tree"),
        pytest.param(None, Pair(1, Array(2)), {".count": 1, ".moments": Plain(2)}, id="a node"),
    ],
)
def test_what_a_script_adds_later_comes_back(made: Any, later: Any, restored: Any) -> None:
    assert fits(later, made)
    assert repr(parts.write_part(made, record_of(later))) == repr(restored)


@pytest.mark.parametrize(
    ("kept", "part"),
    [
        pytest.param({"a": Array(1), "b": Array(2)}, {"a": Array(0), "c": Array(0)}, id="a name"),
        pytest.param({"a": Array(1)}, {"a": Array(0, 0)}, id="a shape"),
        pytest.param({"a": Array(1)}, {"a": Array(0, dtype="bfloat16")}, id="a type"),
        pytest.param([Array(1)], [Array(0), Array(0)], id="a number"),
        pytest.param({".count": 1, ".known": Array(2)}, Pair(0, Array(0)), id="a field"),
        pytest.param([1, Array(2)], Pair(0, Array(0)), id="a list"),
    ],
)
def test_a_tree_with_another_name_shape_or_type_is_not_used(kept: Any, part: Any) -> None:
    assert not fits(kept, part)


def test_the_form_of_a_shard_has_names_shapes_and_types_in_any_order() -> None:
    def form_of(**part: Any) -> list[str]:
        return shards.form_of_shard(part, shards.read_shard(part))

    first = form_of(a=Pair(1, Array(1)), b=[Array(2)], more={})
    assert first == form_of(b=[Array(0)], a=Pair(3, Array(0)), more={"step": 1})
    others = [
        form_of(a=Pair(1, Array(1)), c=[Array(2)]),
        form_of(a=Pair(1, Array(1)), b=[Array(2, 2)]),
        form_of(a=Pair(1, Array(1)), b=[Array(2, dtype="bfloat16")]),
        form_of(a=Pair(Array(1), 1), b=[Array(2)]),
    ]
    assert first not in others


# An array that a packed state takes without NumPy.
Packed = type("Packed", (Array, bytes), {"__new__": lambda kind, *_, **__: bytes.__new__(kind)})


@pytest.mark.parametrize(("spec", "fits_any"), [(("devices",), False), ((None,), True)])
def test_arrays_of_a_mesh_fix_the_size_of_a_run_of_which_one_process_is_left(
    worker: Path, monkeypatch: pytest.MonkeyPatch, spec: Any, fits_any: bool
) -> None:
    """Of two processes, each would have a part of them."""
    monkeypatch.setitem(sys.modules, "jax.experimental.multihost_utils", ModuleType("utils"))
    state: Any = keep.State(weights=[Packed(1, spec=spec)])
    state.restore()
    state.commit()
    assert save_states.fits_any_number(worker / "one") is fits_any


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(SimpleNamespace(), id="without trees"),
        pytest.param(jax(distributed=SimpleNamespace()), id="without is_initialized"),
    ],
)
def test_an_old_version_that_is_only_imported_does_not_matter(
    worker: Path, monkeypatch: pytest.MonkeyPatch, old: Any
) -> None:
    monkeypatch.setitem(sys.modules, "jax", old)
    train(1)
    assert resume()[0] == 1


def test_an_old_version_is_refused_in_several_processes(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = jax(process_count=lambda: 2)
    del old.shard_map
    monkeypatch.setitem(sys.modules, "jax", old)
    with pytest.raises(ValueError, match=r"\bweights\b.* JAX 0\.6\.1 "):
        keep.State(weights=[Array(1)])
    keep.State(weights=[1.0])

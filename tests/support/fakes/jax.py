"""A JAX of which keep sees as much as it uses: lists of numbers, and trees of these."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple


class Plain:
    """A list of numbers in the memory of the CPU, as NumPy has it."""

    def __init__(self, *numbers: float, dtype: str = "float32") -> None:
        self.numbers = numbers
        self.dtype = dtype
        self.shape = (len(numbers),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"

    def __getitem__(self, part: tuple[slice, ...]) -> Plain:
        return Plain(*self.numbers[part[0]], dtype=self.dtype)


class Array(Plain):
    """The same on devices, which `spec` names."""

    is_fully_addressable = True
    is_fully_replicated = False
    committed = True

    def __init__(self, *numbers: float, dtype: str = "float32", spec: Any = ()) -> None:
        super().__init__(*numbers, dtype=dtype)
        self.sharding = SimpleNamespace(spec=spec)

    def kept(self) -> Plain:
        """What is read from a packed state of it."""
        return Plain(*self.numbers, dtype=self.dtype)


class Pair(NamedTuple):
    """As Optax keeps what it knows."""

    count: Any
    moments: Any


class Node:
    """As a data class that is registered with JAX."""

    def __init__(self, variables: Any) -> None:
        self.variables = variables

    def __repr__(self) -> str:
        return f"Node({self.variables})"


def flatten(tree: Any, is_leaf: Any) -> tuple[list[tuple[str, Any]], type]:
    """A tree whose nodes have leaves alone, by paths that are texts."""
    if not isinstance(tree, (Pair, Node)):
        return [("", tree)], type(tree)
    fields = tree._asdict() if isinstance(tree, Pair) else vars(tree)
    assert all(map(is_leaf, fields.values()))
    return [(f".{name}", field) for name, field in fields.items()], type(tree)


def make_array(shape: Any, sharding: Any, find: Any) -> Array:
    data = find((slice(None),))
    assert data.shape == shape
    return Array(*data.numbers, dtype=data.dtype, spec=sharding.spec)


def jax(**more: Any) -> Any:
    """What scripts import, of a version that has all."""
    tree_util = SimpleNamespace(
        tree_flatten_with_path=flatten,
        keystr=str,
        tree_structure=lambda tree, is_leaf: flatten(tree, is_leaf)[1],
        tree_unflatten=lambda kind, leaves: kind(*leaves),
    )
    module = SimpleNamespace(
        Array=Array,
        distributed=SimpleNamespace(is_initialized=lambda: True),
        make_array_from_callback=make_array,
        process_count=lambda: 1,
        process_index=lambda: 0,
        shard_map=None,
        tree_util=tree_util,
    )
    module.__dict__.update(more)
    return module

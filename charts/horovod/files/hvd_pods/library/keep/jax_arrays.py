"""Trees of JAX's arrays: their leaves, and the same trees of what was kept."""

from __future__ import annotations

import sys
from typing import Any, Callable, Tuple

from .arrays import numpy_module

# From where to where an array goes in each dimension of a larger one.
Span = Tuple[Tuple[int, int], ...]


def leaves_of(part: Any) -> list[Any] | None:
    """The leaves of a tree that has arrays of JAX; None for any other part."""
    jax: Any = sys.modules.get("jax")
    leaves = jax.tree.leaves(part) if jax is not None else []
    return leaves if any(isinstance(each, jax.Array) for each in leaves) else None


def is_spread(leaf: Any) -> bool:
    """Whether this process has only a part of an array of JAX."""
    jax: Any = sys.modules.get("jax")
    is_array = jax is not None and isinstance(leaf, jax.Array)
    return is_array and not (leaf.is_fully_addressable or leaf.is_fully_replicated)


def pieces_of(array: Any) -> dict[Span, Any]:
    """What this process has of an array, by its place in it."""
    numpy = numpy_module()
    return {
        _span(each.index, array.shape): numpy.asarray(each.data)
        for each in array.addressable_shards
    }


def make(like: Any, find: Callable[[Span], Any]) -> Any:
    """An array that is placed as another one; `find` returns what belongs to a place in it."""
    jax: Any = sys.modules["jax"]
    if not like.committed:
        # It may be computed with arrays on any devices.
        return jax.numpy.asarray(find(_span((), like.shape)))
    return jax.make_array_from_callback(
        like.shape, like.sharding, lambda index: find(_span(index, like.shape))
    )


def rebuild(part: Any, kept: list[Any]) -> Any:
    """A tree with these leaves, which are placed as its own; those of JAX stay."""
    jax: Any = sys.modules["jax"]

    def place(like: Any, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) or not isinstance(like, jax.Array):
            return leaf
        return make(like, lambda span: leaf[tuple(slice(*each) for each in span)])

    leaves, form = jax.tree.flatten(part)
    return jax.tree.unflatten(form, map(place, leaves, kept))


def _span(index: tuple[slice, ...], shape: tuple[int, ...]) -> Span:
    whole = (*index, *[slice(None)] * (len(shape) - len(index)))
    return tuple(each.indices(size)[:2] for each, size in zip(whole, shape))

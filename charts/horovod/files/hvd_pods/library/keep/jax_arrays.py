"""Trees of JAX's arrays, and the kept state of such trees."""

from __future__ import annotations

import copy
import itertools
import sys
from typing import Any, Callable, Tuple

from .arrays import numpy_module

# From where to where an array goes in each dimension of a larger one.
Span = Tuple[Tuple[int, int], ...]
# The first version of JAX that has what keep needs for several processes: jax.shard_map().
OLDEST_JAX_VERSION = "0.6.1"


def find_jax() -> Any:
    """Return JAX if the script has imported it and it knows the paths of trees, else None."""
    jax: Any = sys.modules.get("jax")
    tools = getattr(jax, "tree_util", None)
    return jax if hasattr(tools, "tree_flatten_with_path") and hasattr(jax, "Array") else None


def is_array(leaf: Any) -> bool:
    jax = find_jax()
    return jax is not None and isinstance(leaf, jax.Array)


def name_children(part: Any) -> Any:
    """Return the children of a node of JAX by path; any other part unchanged.

    A NamedTuple is such a node. Dicts, lists and tuples have names or numbers of their own.
    """
    jax = find_jax()
    if jax is None or part is None or isinstance(part, dict) or type(part) in (list, tuple):
        return part
    pairs = jax.tree_util.tree_flatten_with_path(part, is_leaf=lambda child: child is not part)[0]
    names = {jax.tree_util.keystr(path): child for path, child in pairs}
    # The path of a leaf is empty.
    return part if "" in names else names


def rebuild_tree(part: Any, state: Any, change: Callable[[Any, Any], Any] | None = None) -> Any:
    """Return a tree with the structure of `part` and the kept values.

    Its arrays are placed as those of the part. `change` makes each child from the children of both
    trees; without it, all children are rebuilt.
    """
    rebuild_child = change or rebuild_tree
    names = name_children(part)
    if names is not part and isinstance(state, dict) and state.keys() == names.keys():
        tools = find_jax().tree_util
        form = tools.tree_structure(part, is_leaf=lambda child: child is not part)
        return tools.tree_unflatten(
            form, [rebuild_child(child, state[name]) for name, child in names.items()]
        )
    if isinstance(part, dict) and isinstance(state, dict):
        # A dict of another type is another tree for JAX.
        tree = copy.copy(part)
        tree.clear()
        tree.update({key: rebuild_child(part.get(key), child) for key, child in state.items()})
        return tree
    if isinstance(names, (list, tuple)) and isinstance(state, (list, tuple)):
        pairs = itertools.zip_longest(names[: len(state)], state)
        return type(state)([rebuild_child(template, child) for template, child in pairs])
    if isinstance(names, (dict, list, tuple)):
        return rebuild_child(None, state)
    if not is_array(part) or is_array(state) or getattr(state, "shape", None) != part.shape:
        return state
    return make_array(part, lambda span: state[tuple(slice(*child) for child in span)])


def form_of_tree(part: Any, state: Any) -> Any:
    """Return what must match in a part and in its kept state; None if nothing must.

    These are the names in nodes of JAX, and the shapes and types of its arrays. What the part does
    not have may have been added later.
    """
    if is_array(part):
        return (tuple(state.shape), str(state.dtype)) if hasattr(state, "shape") else None
    names = name_children(part)
    if names is not part:
        if not isinstance(state, dict):
            return None
        return {name: form_of_tree(names.get(name), child) for name, child in state.items()}
    if isinstance(part, dict):
        children = state if isinstance(state, dict) else {}
        forms = {key: form_of_tree(child, children.get(key)) for key, child in part.items()}
    elif isinstance(part, (list, tuple)):
        children = dict(enumerate(state)) if isinstance(state, (list, tuple)) else {}
        forms = {
            number: form_of_tree(child, children.get(number)) for number, child in enumerate(part)
        }
    else:
        return None
    return {key: form for key, form in forms.items() if form is not None} or None


def is_spread(leaf: Any) -> bool:
    """Return whether this process has only a part of an array of JAX."""
    return is_array(leaf) and not (leaf.is_fully_addressable or leaf.is_fully_replicated)


def names_axis(leaf: Any) -> bool:
    """Return whether an array of JAX has parts on the devices of a mesh."""
    return is_array(leaf) and any(getattr(leaf.sharding, "spec", ()))


def is_too_old(leaf: Any) -> bool:
    """Return whether a leaf belongs to several processes of a JAX older than OLDEST_JAX_VERSION."""
    if not is_array(leaf):
        return False
    jax = find_jax()
    has_all = hasattr(jax, "shard_map") and hasattr(jax.Array, "committed")
    return not has_all and jax.process_count() > 1


def pieces_of(array: Any) -> dict[Span, Any]:
    """Return the pieces of an array that this process has, by their place in the array."""
    numpy = numpy_module()
    return {
        _span(shard.index, array.shape): numpy.asarray(shard.data)
        for shard in array.addressable_shards
    }


def make_array(template: Any, find: Callable[[Span], Any]) -> Any:
    """Return an array that is placed as `template`; `find` returns the content of a place in it."""
    jax: Any = sys.modules["jax"]
    if not getattr(template, "committed", True):
        # It may be computed with arrays on any devices.
        return jax.numpy.asarray(find(_span((), template.shape)))
    return jax.make_array_from_callback(
        template.shape, template.sharding, lambda index: find(_span(index, template.shape))
    )


def _span(index: tuple[slice, ...], shape: tuple[int, ...]) -> Span:
    whole = (*index, *[slice(None)] * (len(shape) - len(index)))
    return tuple(part.indices(size)[:2] for part, size in zip(whole, shape))

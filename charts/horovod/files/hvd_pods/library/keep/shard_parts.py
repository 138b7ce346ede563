"""Parts of a state of which each rank has a shard: models and optimizers of PyTorch, and arrays of
JAX.
"""

from __future__ import annotations

import copy
import hashlib
import re
import sys
from typing import Any, Callable, Iterator, Mapping, Sequence

from .arrays import numpy_module
from .jax_arrays import is_array, is_spread, make_array, name_children, pieces_of, rebuild_tree
from .packed_state import UNUSABLE, PackedState, ShardPlace, StepKey, read_packed
from .ranks import Ranks

# Types whose ranks have different shards of the weights. Those that are kept:
SHARDED_TYPES = {"FSDPModule", "FullyShardedDataParallel", "DTensor", "ZeroRedundancyOptimizer"}
# Those that are not, and what to use.
KERAS = "keras.distribution"
REFUSED_TYPES = {
    KERAS: "use its DataParallel, or Keras' own checkpoints",
    "ZeROOptimizer": "use DeepSpeed's own checkpoints",
    "DeepSpeedZeroOptimizer": "use DeepSpeed's own checkpoints",
}
ZERO = "ZeroRedundancyOptimizer"
# An attribute of the parameters of FSDP1, which are of no type of their own.
FLAT = "_fsdp_flattened"
# More ranks than there are anywhere.
MAX_RANKS = 1 << 20
# The key of a map that stands for a sharded tensor, of which the packed state has what is local.
LOCAL = "keep.local"
PLACEMENT = re.compile(r"Shard\(dim=(\d{1,3})\)|Replicate\(\)")


def find_sharded(part: Any) -> set[str]:
    """Return the types because of which each rank has another shard of a part."""
    modules = part.modules() if _is_module(part) else ()
    parameters = [*_parameters_of(part), *(part.parameters() if modules else ())]
    every = [part, getattr(part, "optimizer", None), *modules, *parameters, *find_leaves(part)]
    kinds = {kind.__name__ for leaf in every for kind in type(leaf).__mro__} & {
        *SHARDED_TYPES,
        *REFUSED_TYPES,
    }
    kinds.update("FullyShardedDataParallel" for leaf in parameters if hasattr(leaf, FLAT))
    kinds.update("jax.Array" for leaf in every if is_spread(leaf))
    return kinds


def _is_module(part: Any) -> bool:
    return hasattr(part, "load_state_dict") and hasattr(part, "modules")


def _parameters_of(optimizer: Any) -> list[Any]:
    groups = getattr(optimizer, "param_groups", ())
    return [parameter for group in groups for parameter in group["params"]]


def find_leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree.

    A leaf is a sharded tensor, or a value that is no map, list, tuple or node of JAX.
    """
    tree = name_children(tree)
    if isinstance(tree, (list, tuple)):
        for child in tree:
            yield from find_leaves(child)
    elif isinstance(tree, Mapping) and LOCAL not in tree:
        yield from find_leaves([*tree.values()])
    else:
        yield tree


def _flat_tensors(part: Any) -> dict[str, Any]:
    """Return this rank's flat parameters, and all buffers, of a module of FSDP1, by name.

    Return an empty dict for any other part. The module's own state_dict() gathers whole weights, or
    refuses to.
    """
    if not _is_module(part) or not any(hasattr(parameter, FLAT) for parameter in part.parameters()):
        return {}
    tensors = [*part.named_parameters(), *part.named_buffers()]
    return {name: tensor.detach() for name, tensor in tensors}


def read_shard(part: Any) -> Any:
    """Return this rank's shard of a part."""
    inner = _inner(part)
    tree: Any = _flat_tensors(part) or inner
    if hasattr(tree, "state_dict"):
        tree = tree.state_dict()
    if inner is not part:
        # A schedule of the learning rate changes its groups, from which the next step takes it.
        tree["param_groups"] = [
            {**group, **{key: option for key, option in outer.items() if key != "params"}}
            for group, outer in zip(tree["param_groups"], part.param_groups)
        ]
    return _walk(_take_local, tree)


def write_shard(part: Any, state: Any) -> Any:
    """Restore this rank's shard of a part; return the part, or the value that replaces it."""
    # What takes the tensors themselves must not see the next packed state in their memory.
    state = copy.deepcopy(state)
    inner = _inner(part)
    flat = _flat_tensors(part)
    for name, tensor in flat.items():
        tensor.copy_(state[name])
    if flat:
        return part
    state = _walk(_make_whole, state, templates_of(inner))
    if not hasattr(inner, "load_state_dict"):
        return rebuild_tree(part, state)
    inner.load_state_dict(state)
    if inner is not part:
        for outer, group in zip(part.param_groups, inner.param_groups):
            outer.update({key: option for key, option in group.items() if key != "params"})
    return part


def templates_of(part: Any) -> Any:
    """Return a tree like the kept state of a part, whose tensors have the placement to restore."""
    if hasattr(part, "param_groups"):
        return {"state": dict(enumerate(_parameters_of(part)))}
    return part.state_dict() if hasattr(part, "load_state_dict") else part


def _inner(part: Any) -> Any:
    """Return the optimizer of this rank's own parameters, or the part itself."""
    is_zero = any(kind.__name__ == ZERO for kind in type(part).__mro__)
    return part.optim if is_zero else part


def _is_distributed(value: Any) -> bool:
    return hasattr(value, "to_local") and hasattr(value, "placements")


def _walk(change: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree of maps and lists in which `change` has replaced leaves and sharded tensors.

    Nodes of JAX become maps. `others` are trees of the same form. A value that is no map or list
    stands for all of its children.
    """
    tree = name_children(tree)

    def walk_child(key: Any, child: Any) -> Any:
        return _walk(change, child, *[_child_at(key, other) for other in others])

    if isinstance(tree, Mapping) and LOCAL not in tree:
        return {key: walk_child(key, child) for key, child in tree.items()}
    if isinstance(tree, (list, tuple)):
        children = [walk_child(number, child) for number, child in enumerate(tree)]
        return children if isinstance(tree, list) else tuple(children)
    return change(tree, *others)


def _child_at(key: Any, tree: Any) -> Any:
    tree = name_children(tree)
    if not isinstance(tree, (Mapping, list, tuple)):
        return tree
    try:
        return tree[key]
    except LookupError:
        return None


def _take_local(value: Any) -> Any:
    """Return a map with the local data of a DTensor or an array of JAX; other values unchanged."""
    if is_spread(value):
        pieces = pieces_of(value)
        return {
            LOCAL: [*pieces.values()],
            "shape": [*value.shape],
            "dtype": str(value.dtype),
            "spans": [*pieces],
        }
    if not _is_distributed(value):
        return value
    return {
        LOCAL: value.detach().to_local(),
        "shape": [*value.shape],
        "stride": [*value.stride()],
        "placements": [*map(repr, value.placements)],
        "mesh": [*value.device_mesh.shape],
        "at": [*value.device_mesh.get_coordinate()],
    }


def _make_whole(value: Any, template: Any) -> Any:
    """Return a tensor that is placed as `template`, from its local data; other values unchanged."""
    if not isinstance(value, dict):
        return value
    if "spans" in value:
        return make_array(template, dict(zip(value["spans"], value[LOCAL])).__getitem__)
    return _distribute(value, template)


def divide_shards(
    ranks: Ranks,
    key: StepKey,
    holders: Sequence[int],
    sizes: Mapping[ShardPlace, Mapping[StepKey, PackedState]],
    parts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return this rank's state of a step that another number of ranks has made, as it keeps states.

    By rank of that number, `holders` are the ranks that can read its shard, of those in `sizes`.
    Each shard is sent to all ranks, one after the other. `parts` are this script's. A rank's own
    state stays with its number. All ranks must call this. Raises ValueError for tensors that cannot
    be divided.
    """
    own_state: dict[str, Any] = {"shards": dict.fromkeys(parts)}
    templates = {name: templates_of(part) for name, part in parts.items()}
    for rank, holder in enumerate(holders):
        packed = sizes[ShardPlace(len(holders), rank)][key] if ranks.rank == holder else None
        described = (packed.place, len(packed.raw)) if packed is not None else ("", 0)
        place, size = ranks.gather(described)[holder]
        raw = ranks.broadcast(packed and packed.raw, size, holder)
        value = read_packed(place, raw).value
        if rank == ranks.rank:
            own_state.update(own=value["own"], seeds=value["seeds"])
        for name, template in templates.items():
            tree = value["shards"][name]
            own_state["shards"][name] = _walk(_take_part, tree, template, own_state["shards"][name])
    return own_state


def _take_part(value: Any, template: Any, local: Any) -> Any:
    """Return the local data of a tensor placed as `template`, with what one shard has of it."""
    if not isinstance(value, dict):
        return value if local is None else local
    if local is None:
        if value["shape"] != [*getattr(template, "shape", ())]:
            raise ValueError(
                f"keep: a tensor of the shape {value['shape']}, which was kept by another number "
                "of ranks, cannot be divided: train with that number, or set another OUTPUT_PATH"
            )
        local = _take_local(template)
        pieces = value[LOCAL]
        if "spans" in value:
            make_empty = numpy_module().empty
            local[LOCAL] = [make_empty(piece.shape, pieces[0].dtype) for piece in local[LOCAL]]
        else:
            local[LOCAL] = pieces.new_empty(local[LOCAL].shape)
    for target, room in _pieces(local):
        for source, piece in _pieces(value):
            overlap = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(target, source)]
            if all(begin < end for begin, end in overlap):
                room[_slices(overlap, target)] = piece[_slices(overlap, source)]
    return local


def _slices(
    region: Sequence[tuple[int, int]], span: Sequence[tuple[int, int]]
) -> tuple[slice, ...]:
    """Return where a region of a tensor is in its piece that has this span."""
    return tuple(
        slice(begin - first, end - first) for (begin, end), (first, _) in zip(region, span)
    )


def _pieces(node: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each local piece of a tensor, with its start and end in each dimension."""
    if "spans" in node:
        yield from zip(node["spans"], node[LOCAL])
        return
    span = [(0, end) for end in node["shape"]]
    for placement, size, at in zip(node["placements"], node["mesh"], node["at"]):
        match = _match(placement)
        if match[1] is not None:
            # As torch.chunk, of what the dimensions of the mesh before have left.
            begin, end = span[int(match[1])]
            share = -(-(end - begin) // size)
            first = min(begin + at * share, end)
            span[int(match[1])] = first, min(first + share, end)
    if [end - begin for begin, end in span] != [*node[LOCAL].shape]:
        raise ValueError(f"keep: a shard of {node[LOCAL].shape} is not where {span} says")
    yield span, node[LOCAL]


def _distribute(node: Mapping[str, Any], template: Any) -> Any:
    """Return a DTensor made from its local data."""
    if not _is_distributed(template):
        raise ValueError("keep: a tensor that was sharded is not in this script")
    torch: Any = sys.modules["torch"]
    placements = template.placements
    if node["placements"] != [*map(repr, placements)]:
        # As a state of an optimizer that is not sharded as its parameter.
        placements = [_placement(text) for text in node["placements"]]
    local = node[LOCAL].to(template.to_local().device)
    with torch.no_grad():
        return type(template).from_local(
            local,
            template.device_mesh,
            placements,
            run_check=False,
            shape=torch.Size(node["shape"]),
            stride=tuple(node["stride"]),
        )


def _placement(text: str) -> Any:
    """Return the placement that a text shows. Raises ValueError for an unknown one."""
    module = sys.modules["torch.distributed.tensor"]
    match = _match(text)
    return module.Replicate() if match[1] is None else module.Shard(int(match[1]))


def _match(text: str) -> re.Match[str]:
    match = PLACEMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"keep: a tensor that is placed by {text:.80} cannot be restored")
    return match


def form_of_shard(part: Any, tree: Any) -> list[str]:
    """Return checksums of what must match in a part and in its kept state.

    The first checksum is independent of the number of ranks; it is empty for a part that cannot be
    divided among another number. For an optimizer, the checksums are of the numbers of parameters;
    otherwise, they are of the shapes, placements and meshes of tensors.
    """
    if hasattr(part, "param_groups"):
        same = whole = [len(group["params"]) for group in tree["param_groups"]]
        parameters = _parameters_of(part)
        is_divided = all(map(_is_distributed, parameters)) and all(
            _is_placed_as(parameters[number], leaf)
            for number, state in tree["state"].items()
            for leaf in find_leaves(state)
        )
    else:
        whole, same = (_form(tree, is_whole=is_whole) for is_whole in (True, False))
        is_divided = not _flat_tensors(part)
    is_divided = is_divided and all(map(_is_known, find_leaves(tree)))
    forms = [whole if is_divided else None, same]
    return [hashlib.sha256(repr(leaf).encode()).hexdigest()[:16] if leaf else "" for leaf in forms]


def _is_known(value: Any) -> bool:
    """Return whether the local region of a value, which may be a sharded tensor, is known.

    It is unknown if both FSDP2 and tensor parallelism divide the same dimension.
    """
    texts = value.get("placements", ()) if isinstance(value, dict) else ()
    return all(map(PLACEMENT.fullmatch, texts))


def _is_placed_as(parameter: Any, value: Any) -> bool:
    """Return whether an optimizer's value is a tensor like its parameter, or a shared number."""
    shape = value["shape"] if isinstance(value, dict) else [*getattr(value, "shape", ())]
    return shape == ([*parameter.shape] if isinstance(value, dict) else [])


def _form(tree: Any, *, is_whole: bool) -> Any:
    """Return the forms of a tree's tensors; if `is_whole`, without what differs between ranks."""
    if isinstance(tree, Mapping) and LOCAL in tree:
        if is_whole:
            return [tree["shape"], tree["dtype"]] if "dtype" in tree else tree["shape"]
        local = [tuple(child.shape) for child in find_leaves(tree[LOCAL])]
        return local, [tree[key] for key in sorted(tree.keys() - {LOCAL, "stride"})]
    if isinstance(tree, (list, tuple)):
        tree = dict(enumerate(tree))
    if isinstance(tree, Mapping):
        forms = {key: _form(child, is_whole=is_whole) for key, child in tree.items()}
        # JAX brings dicts back with their keys in another order.
        return sorted([item for item in forms.items() if item[1] is not None], key=repr)
    if is_array(tree):
        return tuple(tree.shape), str(tree.dtype)
    return tuple(tree.shape) if hasattr(tree, "shape") else None


def find_division(packed: PackedState, forms: Mapping[str, Sequence[str]]) -> ShardPlace | None:
    """Return the place of a shard that can be divided; None for any other packed state.

    `forms` are those of the parts of this script, by their names.
    """
    try:
        state = packed.value
        kept_forms = state["forms"]
        _ = state["own"], state["seeds"], [state["shards"][name] for name in forms], state["run"]
        is_alike = all(form[0] and form[0] == kept_forms[name][0] for name, form in forms.items())
        place = ShardPlace(int(state["size"]), int(state["rank"]))
    except UNUSABLE:
        return None
    is_valid = 0 <= place.rank < place.size < MAX_RANKS
    return place if is_valid and is_alike and kept_forms.keys() == forms.keys() else None


def find_shard_difference(
    packed: PackedState, rank: int, size: int, forms: Mapping[str, Sequence[str]]
) -> str:
    """Return why a packed state is not the shard of this rank of `size`; empty if it is.

    `forms` are those of its parts, by their names.
    """
    try:
        state = packed.value
        kept_forms = state["forms"]
        if (state["rank"], state["size"]) != (rank, size):
            shard = f"the shard of rank {state['rank']} of {state['size']}"
            return f"{packed.place} has {shard}, but this is rank {rank} of {size}"
        if kept_forms.keys() != forms.keys():
            return f"{packed.place} has the sharded parts {[*kept_forms]}, this script {[*forms]}"
        others = [name for name, form in forms.items() if form != kept_forms[name]]
        _ = state["own"], state["seeds"], [state["shards"][name] for name in forms], state["run"]
    except UNUSABLE as problem:
        return f"{packed.place} has no shard of this module: {problem!r}"
    if others:
        return f"{packed.place} has shards of other shapes than this script: {others}"
    return ""

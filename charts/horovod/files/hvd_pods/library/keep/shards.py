"""Parts of a state of which each rank has a shard: models and optimizers of PyTorch."""

from __future__ import annotations

import copy
import hashlib
import re
import sys
from typing import Any, Mapping

from .record import UNUSABLE, Record

# Types whose ranks have different shards of the weights. Those of PyTorch that are kept:
KEPT = {"FSDPModule", "DTensor", "ZeroRedundancyOptimizer"}
# Those that are not, and what to use.
REFUSED = {
    "FullyShardedDataParallel": "shard the model by torch.distributed.fsdp.fully_shard",
    "ZeROOptimizer": "use DeepSpeed's own checkpoints",
    "DeepSpeedZeroOptimizer": "use DeepSpeed's own checkpoints",
}
ZERO = "ZeroRedundancyOptimizer"
# The key of a map that stands for a DTensor, of which the record has what is local.
LOCAL = "keep.local"
PLACEMENT = re.compile(r"Shard\(dim=(\d{1,3})\)|Replicate\(\)")


def find_sharded(part: Any) -> set[str]:
    """The types by which each rank has another shard of a part."""
    modules = (
        part.modules() if hasattr(part, "load_state_dict") and hasattr(part, "modules") else ()
    )
    groups = getattr(part, "param_groups", ())
    parameters = [each for group in groups for each in group["params"]]
    if modules:
        parameters += part.parameters()
    every = [part, getattr(part, "optimizer", None), *modules, *parameters]
    kinds = {kind.__name__ for each in every for kind in type(each).__mro__}
    return kinds & {*KEPT, *REFUSED}


def read_shard(part: Any) -> Any:
    """What this rank has of a part."""
    inner = _inner(part)
    tree = inner.state_dict() if hasattr(inner, "state_dict") else inner
    if inner is not part:
        # A schedule of the learning rate changes its groups, from which the next step takes it.
        tree["param_groups"] = [
            {**group, **{key: each for key, each in outer.items() if key != "params"}}
            for group, outer in zip(tree["param_groups"], part.param_groups)
        ]
    return _take_local(tree)


def write_shard(part: Any, kept: Any) -> Any:
    """Give a part what this rank had of it; return the part, or the value that replaces it."""
    # What takes the tensors themselves must not see the next record in their memory.
    kept = copy.deepcopy(kept)
    inner = _inner(part)
    if not hasattr(inner, "load_state_dict"):
        return _make_whole(kept, inner)
    if hasattr(inner, "param_groups"):
        parameters = [each for group in inner.param_groups for each in group["params"]]
        kept["state"] = {
            number: _make_whole(each, parameters[number]) for number, each in kept["state"].items()
        }
    else:
        kept = _make_whole(kept, inner.state_dict())
    inner.load_state_dict(kept)
    if inner is not part:
        for outer, group in zip(part.param_groups, inner.param_groups):
            outer.update({key: each for key, each in group.items() if key != "params"})
    return part


def _inner(part: Any) -> Any:
    """The optimizer of this rank's own parameters, or the part itself."""
    is_zero = any(kind.__name__ == ZERO for kind in type(part).__mro__)
    return part.optim if is_zero else part


def _is_distributed(value: Any) -> bool:
    return hasattr(value, "to_local") and hasattr(value, "placements")


def _take_local(tree: Any) -> Any:
    """A tree of maps with what is local of its DTensors."""
    if isinstance(tree, Mapping):
        return {key: _take_local(each) for key, each in tree.items()}
    if not _is_distributed(tree):
        return tree
    return {
        LOCAL: tree.detach().to_local(),
        "shape": [*tree.shape],
        "stride": [*tree.stride()],
        "placements": [*map(repr, tree.placements)],
        "mesh": [*tree.device_mesh.shape],
    }


def _make_whole(tree: Any, like: Any) -> Any:
    """A tree with DTensors again, on the meshes that the same places of `like` have.

    `like` is a tree of the same form, or a parameter, as of which all of the tree is distributed.
    """
    if isinstance(tree, dict) and LOCAL in tree:
        return _distribute(tree, like)

    if isinstance(tree, dict):
        is_map = isinstance(like, Mapping)
        return {
            key: _make_whole(each, like.get(key) if is_map else like) for key, each in tree.items()
        }
    return tree


def _distribute(node: Mapping[str, Any], like: Any) -> Any:
    """A DTensor of what is local of it."""
    if not _is_distributed(like):
        raise ValueError("keep: a tensor that was sharded is not in this script")
    torch: Any = sys.modules["torch"]
    placements = like.placements
    if node["placements"] != [*map(repr, placements)]:
        # As a state of an optimizer that is not sharded as its parameter.
        placements = [_placement(text) for text in node["placements"]]
    local = node[LOCAL].to(like.to_local().device)
    with torch.no_grad():
        return type(like).from_local(
            local,
            like.device_mesh,
            placements,
            run_check=False,
            shape=torch.Size(node["shape"]),
            stride=tuple(node["stride"]),
        )


def _placement(text: str) -> Any:
    """The placement that its text shows. Raises ValueError for one that is not known."""
    module = sys.modules["torch.distributed.tensor"]
    match = PLACEMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"keep: a tensor that is placed by {text:.80} cannot be restored")
    return module.Replicate() if match[1] is None else module.Shard(int(match[1]))


def form_of_shard(part: Any, tree: Any) -> str:
    """A checksum of what must match in a part and in what was kept of it.

    These are the numbers of parameters of an optimizer, and otherwise the shapes, placements and
    meshes of tensors.
    """
    form: Any
    if hasattr(part, "param_groups"):
        form = [len(group["params"]) for group in tree["param_groups"]]
    elif isinstance(tree, dict) and LOCAL not in tree:
        form = {key: _form_of_value(each) for key, each in tree.items()}
        form = {key: each for key, each in form.items() if each is not None}
    else:
        form = _form_of_value(tree)
    return hashlib.sha256(repr(form).encode()).hexdigest()[:16]


def _form_of_value(value: Any) -> Any:
    if isinstance(value, dict) and LOCAL in value:
        local = tuple(value[LOCAL].shape)
        return local, value["shape"], value["placements"], value["mesh"]
    return tuple(value.shape) if hasattr(value, "shape") else None


def find_shard_difference(record: Record, rank: int, size: int, forms: Mapping[str, str]) -> str:
    """Why a record is not the shard of this rank of so many, or an empty text.

    `forms` are those of its parts, by their names.
    """
    try:
        kept = record.value
        there = kept["forms"]
        if (kept["rank"], kept["size"]) != (rank, size):
            what = f"the shard of rank {kept['rank']} of {kept['size']}"
            return f"{record.place} has {what}, but this is rank {rank} of {size}"
        if there.keys() != forms.keys():
            return f"{record.place} has the sharded parts {[*there]}, this script {[*forms]}"
        others = [name for name, form in forms.items() if form != there[name]]
        _ = kept["own"], kept["seeds"], [kept["shards"][name] for name in forms], kept["run"]
    except UNUSABLE as problem:
        return f"{record.place} has no shard of this module: {problem!r}"
    if others:
        return f"{record.place} has shards of other shapes than this script: {others}"
    return ""

"""The parts of a state: how to read what is kept of them, and how to restore it."""

from __future__ import annotations

import copy
from typing import Any, Iterable, Mapping

from .arrays import is_variable
from .jax_arrays import (
    OLDEST_JAX_VERSION,
    form_of_tree,
    is_spread,
    is_too_old,
    name_children,
    rebuild_tree,
)
from .packed_content import PLAIN_TYPES
from .packed_state import UNUSABLE, PackedState
from .shard_parts import KERAS, REFUSED_TYPES, find_leaves, find_sharded

# A variable of Keras with random numbers, which is the rank's own.
SEED = "seed_generator_state"
# What Keras' callbacks learn in a training (EarlyStopping, ReduceLROnPlateau, ModelCheckpoint).
LEARNED = ("best", "best_epoch", "best_weights", "cooldown_counter", "wait")


def variables_of(part: Any) -> list[Any] | None:
    """Return the variables of a model, an optimizer or a list; None if it has none."""
    if is_variable(part):
        return [part]
    if isinstance(part, (list, tuple)):
        return [*part] if part and all(map(is_variable, part)) else None
    attribute = getattr(part, "variables", None)
    if attribute is None:
        return None
    variables = [*(attribute() if callable(attribute) else attribute)]
    # Keras 2 does not count it.
    rate = getattr(part, "learning_rate", None)
    if is_variable(rate) and all(rate is not variable for variable in variables):
        variables.append(rate)
    return variables


def is_callback(part: Any) -> bool:
    return hasattr(part, "on_epoch_end") and not hasattr(part, "get_state")


def _is_seed(variable: Any) -> bool:
    return SEED in str(getattr(variable, "path", getattr(variable, "name", "")))


def read_part(part: Any, seeds: list[Any]) -> Any:
    """Return the state to keep of a part; append the variables with random numbers to `seeds`."""
    if type(part) in PLAIN_TYPES:
        return part
    part = name_children(part)
    if hasattr(part, "state_dict"):
        return part.state_dict()
    if hasattr(part, "bit_generator"):
        return part.bit_generator.state
    if hasattr(part, "get_state"):
        return part.get_state()
    if is_callback(part):
        return {name: vars(part)[name] for name in LEARNED if name in vars(part)}
    if isinstance(part, dict):
        return {key: read_part(child, seeds) for key, child in part.items()}
    variables = variables_of(part)
    if variables is None:
        if not isinstance(part, (list, tuple)):
            return part
        values = [read_part(child, seeds) for child in part]
        return values if isinstance(part, list) else tuple(values)
    seeds += filter(_is_seed, variables)
    return [child for child in variables if not _is_seed(child)]


def write_part(part: Any, state: Any) -> Any:
    """Restore a part from its kept state; return the part, or the value that replaces it."""
    names = name_children(part)
    if variables_of(names) is not None and not hasattr(names, "load_state_dict"):
        for variable, array in zip(read_part(part, []), state):
            variable.assign(array)
        return part
    if not isinstance(names, (dict, list, tuple)):
        # What takes the arrays themselves must not see the next packed state in their memory.
        state = copy.deepcopy(state)
    if hasattr(names, "load_state_dict"):
        part.load_state_dict(state)
    elif hasattr(names, "bit_generator"):
        part.bit_generator.state = state
    elif hasattr(names, "set_state"):
        part.set_state(state)
    elif is_callback(names):
        # A checkpoint may come from anybody: it sets nothing else.
        vars(part).update({name: state[name] for name in LEARNED if name in state})
    else:
        return rebuild_tree(part, state, write_part)
    return part


def form_of(part: Any, state: Any) -> Any:
    """Return what must match in a part and in its kept state: shapes, or numbers of parameters."""
    names = name_children(part)
    if hasattr(names, "param_groups"):
        return [len(group["params"]) for group in state["param_groups"]]
    if hasattr(names, "state_dict"):
        return {key: tuple(array.shape) for key, array in state.items() if hasattr(array, "shape")}
    if variables_of(names) is not None:
        return [tuple(array.shape) for array in state]
    form = form_of_tree(part, state)
    if form is None and hasattr(names, "shape") and hasattr(state, "shape"):
        return tuple(state.shape)
    return form


def check_part(name: str, part: Any) -> None:
    """Raise ValueError for a part that has no variables yet, or whose shards are not kept.

    Also for arrays of a version of JAX that is too old for several processes.
    """
    if hasattr(part, "trainable_variables") and not getattr(part, "built", True):
        raise ValueError(
            f"keep: {name} has no variables yet, so that nothing of it would be kept: build the "
            "model first, as with model.build(input_shape)"
        )
    kinds = find_sharded(part) & {*REFUSED_TYPES}
    values = [
        getattr(variable, "value", None) for variable in variables_of(name_children(part)) or ()
    ]
    if any(map(is_too_old, [*find_leaves(part), *values])):
        raise ValueError(
            f"keep: {name} has arrays of JAX in several processes, which keep does not support "
            f"with this version of it: install JAX {OLDEST_JAX_VERSION} or newer"
        )
    if any(map(is_spread, values)):
        kinds.add(KERAS)
    for kind in sorted(kinds):
        raise ValueError(
            f"keep: {name} is sharded ({kind}), which is not kept: {REFUSED_TYPES[kind]}"
        )


def build_optimizer(name: str, part: Any, parts: Iterable[Any]) -> None:
    """Give an optimizer of Keras its variables, which it makes in the first step otherwise.

    Raises ValueError where it is not clear which model of `parts` it trains.
    """
    if not hasattr(part, "apply_gradients"):
        return
    if getattr(part, "built", getattr(part, "_built", False)):
        return
    trained = [
        model.trainable_variables for model in parts if hasattr(model, "trainable_variables")
    ]
    build = getattr(part, "build", getattr(part, "_create_all_weights", None))
    if len(trained) != 1 or build is None:
        raise ValueError(
            f"keep: {name} has no variables yet, and {len(trained)} models are kept with it: "
            f"build it first with those that it trains, as {name}.build("
            "model.trainable_variables)"
        )
    build(trained[0])


def find_difference(packed: PackedState, parts: Mapping[str, Any]) -> str:
    """Return why a packed state is not the state of a script with these parts; empty if it is."""
    try:
        state = packed.value
        trees = state["parts"]
        _ = state["run"]
        if trees.keys() != parts.keys():
            return f"{packed.place} has the parts {[*trees]}, this script {[*parts]}"
        for name, tree in trees.items():
            form = form_of(parts[name], read_part(parts[name], []))
            kept_form = form_of(parts[name], tree)
            if form != kept_form:
                return f"{packed.place}: {name} has the shapes {kept_form}, here {form}"
    except UNUSABLE as problem:
        return f"{packed.place} has no state of this module: {problem!r}"
    return ""

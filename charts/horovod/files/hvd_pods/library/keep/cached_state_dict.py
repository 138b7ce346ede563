"""The states of models and optimizers of PyTorch, read in each commit without a search.

`state_dict()` makes some thousand calls for a model, and nearly always finds the same tensors under
the same names. The result is kept with the place of each object, and is returned as long as the
same objects are there.
"""

from __future__ import annotations

import sys
from operator import is_
from typing import Any, Union

from .packed_content import FrozenDict

# What a module has in dicts of these names, state_dict() returns, but for some buffers.
CONTENT = ("_parameters", "_buffers", "_modules")
NOT_KEPT = "_non_persistent_buffers_set"
HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks")
# What a class, or a module itself, has of its own if its state is another one.
METHODS = ("state_dict", "_save_to_state_dict", "get_extra_state")


class ModelState:
    """The result of `state_dict()` for a model without hooks and methods of its own for that."""

    def __init__(self, model: Any) -> None:
        self.part = model
        self._look_for_all()

    def read(self) -> Any:
        """Return the state of the model; search all of it again if the model has changed."""
        if self._is_plain and not self._is_same():
            self._look_for_all()
        return self._value if self._is_plain else self.part.state_dict()

    def _look_for_all(self) -> None:
        # The attributes of all modules, and the dicts and sets among them that decide.
        self._owners: list[dict[str, Any]] = []
        self._content: list[Any] = []
        self._sets: list[Any] = []
        self._sizes: list[int] = []
        # The places in the dicts, and what each has there.
        self._places: list[tuple[dict[str, Any], str]] = []
        self._objects: list[Any] = []
        self._value = FrozenDict()
        self._is_plain = self._look(self.part, "")
        self._sizes = [*map(len, self._content), *map(len, self._sets)]

    def _look(self, module: Any, prefix: str) -> bool:
        """Note what state_dict() returns of this module and its children.

        Return False if it may return something else.
        """
        plain = sys.modules["torch"].nn.Module
        members = vars(module)
        # A module of TorchScript has none of these dicts.
        if not all(isinstance(members.get(kind), dict) for kind in CONTENT):
            return False
        # Older versions have no hooks of the second kind.
        hooks = [members[name] for name in HOOKS if name in members]
        if any(hooks) or any(name in members for name in METHODS):
            return False
        if any(getattr(type(module), name) is not getattr(plain, name) for name in METHODS):
            return False
        self._owners.append(members)
        self._sets += [members[NOT_KEPT], *hooks]
        for kind in CONTENT:
            content = members[kind]
            self._content.append(content)
            self._places += [(content, name) for name in content]
            self._objects += content.values()
            for name, value in content.items():
                if value is None or (kind == "_buffers" and name in members[NOT_KEPT]):
                    continue
                if kind != "_modules":
                    self._value[prefix + name] = value
                elif not self._look(value, f"{prefix}{name}."):
                    return False
        return True

    def _is_same(self) -> bool:
        content = [members[kind] for members in self._owners for kind in CONTENT]
        if not _are_same(content, self._content):
            return False
        if [*map(len, content), *map(len, self._sets)] != self._sizes:
            return False
        try:
            return _are_same([owner[name] for owner, name in self._places], self._objects)
        except KeyError:
            return False


class OptimizerState:
    """The result of `state_dict()` for an optimizer, whose tensors are searched once."""

    def __init__(self, optimizer: Any) -> None:
        self.part = optimizer
        # Of each parameter with those of its dict, and what all of these have.
        self._keys: list[Any] = []
        self._objects: list[Any] = []
        self._value = FrozenDict()

    def read(self) -> Any:
        """Return the state of the optimizer, with its current options."""
        state_dict = self.part.state_dict()
        state = state_dict.get("state")
        if type(state) is not dict or any(type(value) is not dict for value in state.values()):
            return state_dict
        keys = [(key, *entry) for key, entry in state.items()]
        objects = [value for entry in state.values() for value in entry.values()]
        if keys != self._keys or not _are_same(objects, self._objects):
            tensor = sys.modules["torch"].Tensor
            if not all(isinstance(value, tensor) for value in objects):
                return state_dict
            # The dicts are the optimizer's own, which may get other tensors.
            self._value = FrozenDict((key, {**entry}) for key, entry in state.items())
            self._keys = keys
            self._objects = objects
        return {**state_dict, "state": self._value}


Reader = Union[ModelState, OptimizerState]


def find_reader(part: Any) -> Reader | None:
    """Return what reads a part repeatedly; None unless it is a model or optimizer of PyTorch."""
    torch = sys.modules.get("torch")
    if isinstance(part, getattr(getattr(torch, "nn", None), "Module", ())):
        return ModelState(part)
    if isinstance(part, getattr(getattr(torch, "optim", None), "Optimizer", ())):
        return OptimizerState(part)
    return None


def _are_same(objects: list[Any], others: list[Any]) -> bool:
    """Return whether two lists have the same objects."""
    return len(objects) == len(others) and all(map(is_, objects, others))

"""What a record has to hold of a value: its description, and where arrays and tensors go."""

from __future__ import annotations

import json
import sys
from typing import Any, List, Mapping, NamedTuple, Tuple

from . import arrays

# The bytes of a record before its description, of which other places are multiples.
BEGIN = 64
# Of values that have no cycles.
ENCODER = json.JSONEncoder(check_circular=False, separators=(",", ":"))
PLAIN = frozenset([type(None), bool, int, float, str])
# An array or a tensor in an outline. In JSON no text has these quotation marks, and no dict but
# this one has this key.
LEAF = {"leaf": 0}
LEAF_TEXT = ENCODER.encode(LEAF)
# Bytes that the CPU reads, and where they begin.
Parts = List[Tuple[int, memoryview]]
# The type, the shape and the bytes of an array.
Bytes = Tuple[str, List[int], memoryview]


class Layout(NamedTuple):
    """Where a record has its arrays and tensors, which most commits have alike.

    forms: what a leaf must have for this. texts: its node of the description. at: where it begins,
    counted from the end of the description. size: the bytes of all. shared: arrays of PyTorch whose
    bytes are the memory of the tensor itself.
    """

    forms: list[Any]
    texts: list[str]
    at: list[int]
    size: int
    shared: dict[int, tuple[Any, int, Bytes]]


class Content:
    """What a record has: its description, arrays that the CPU reads, and tensors on GPUs.

    The arrays follow the description, and the tensors follow the arrays, so that one copy takes all
    tensors. `parts` and `places` say where they begin. What the content of an earlier value had
    `before` is not made again where it is the same.
    """

    def __init__(self, value: Any, before: Layout | None = None) -> None:
        self._leaves: list[Any] = []
        torch = sys.modules.get("torch")
        # A subclass of tensors may have other bytes.
        self._tensors = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        outline = ENCODER.encode(self._outline(value))
        shared: dict[int, tuple[Any, int, Bytes]] = {}
        forms: list[Any] = []
        held: list[Any] = []
        for leaf in self._leaves:
            if type(leaf) in self._tensors and leaf.is_cuda:
                forms.append((leaf.device, leaf.dtype, leaf.shape, leaf.stride()))
                held.append(None)
                continue
            kind, shape, data = self._to_bytes(leaf, before, shared)
            forms.append((kind, shape, len(data)))
            held.append(data)
        self.tensors = [leaf for leaf, data in zip(self._leaves, held) if data is None]
        if before is not None and before.forms == forms:
            self.layout = before._replace(shared=shared)
        else:
            self.layout = self._place(forms, held, shared)
        pieces = outline.split(LEAF_TEXT)
        pairs = zip(pieces, [*self.layout.texts, ""])
        self.description = "".join(text for pair in pairs for text in pair).encode()
        begin = aligned(BEGIN + len(self.description))
        self.parts: Parts = []
        self.places: list[int] = []
        for at, data in zip(self.layout.at, held):
            if data is None:
                self.places.append(begin + at)
            else:
                self.parts.append((begin + at, data))
        self.size = begin + self.layout.size

    def _outline(self, value: Any) -> Any:
        """A value as JSON has it; its arrays and tensors are taken down in their order."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind in self._tensors:
            self._leaves.append(value)
            return LEAF
        if isinstance(value, (dict, Mapping)):
            # A model has hundreds of tensors: a call for each of them would take longest here.
            pairs = []
            for key, each in value.items():
                if type(each) in self._tensors:
                    self._leaves.append(each)
                    node: Any = LEAF
                else:
                    node = self._outline(each)
                pairs.append([key if type(key) in PLAIN else self._outline(key), node])
            return {"map": pairs}
        if isinstance(value, (list, tuple)):
            name = "list" if isinstance(value, list) else "tuple"
            return {name: [self._outline(each) for each in value]}
        if isinstance(value, (int, float, str)):
            return value
        self._leaves.append(value)
        return LEAF

    def _to_bytes(
        self, leaf: Any, before: Layout | None, shared: dict[int, tuple[Any, int, Bytes]]
    ) -> Bytes:
        """What arrays.to_bytes makes of this, and has made of the same tensor before."""
        if type(leaf) not in self._tensors:
            return arrays.to_bytes(leaf)
        address = leaf.data_ptr()
        known = before.shared.get(id(leaf)) if before is not None else None
        if not leaf.is_contiguous():
            # The bytes are a copy, which does not follow the tensor.
            return arrays.to_bytes(leaf)
        if known is None or known[1] != address or known[2][1] != [*leaf.shape]:
            known = (leaf, address, arrays.to_bytes(leaf))
        shared[id(leaf)] = known
        return known[2]

    def _place(
        self, forms: list[Any], held: list[Any], shared: dict[int, tuple[Any, int, Bytes]]
    ) -> Layout:
        """Find a place for each leaf: first for arrays, then for tensors."""
        at = [0] * len(forms)
        texts = [""] * len(forms)
        end = 0
        for on_gpu in (False, True):
            for number, data in enumerate(held):
                if (data is None) is not on_gpu:
                    continue
                leaf = self._leaves[number]
                if on_gpu:
                    size = leaf.numel() * leaf.element_size()
                    node = {"array": str(leaf.dtype), "shape": [*leaf.shape], "bytes": size}
                else:
                    kind, shape, size = forms[number]
                    node = {"array": kind, "shape": shape, "bytes": size}
                at[number] = aligned(end)
                end = at[number] + size
                texts[number] = ENCODER.encode({**node, "at": at[number]})
        return Layout(forms, texts, at, end, shared)


def aligned(at: int) -> int:
    return -(-at // BEGIN) * BEGIN

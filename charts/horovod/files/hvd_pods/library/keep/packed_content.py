"""The content of a packed state: its description, and the places of arrays and tensors."""

from __future__ import annotations

import json
import sys
import weakref
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from . import arrays

# The bytes of a packed state before its description, of which other places are multiples.
HEADER_SIZE = 64
# Of values that have no cycles.
ENCODER = json.JSONEncoder(check_circular=False, separators=(",", ":"))
PLAIN_TYPES = frozenset([type(None), bool, int, float, str])
# An array or a tensor in an outline. In JSON no text has these quotation marks, and no dict but
# this one has this key.
LEAF = {"leaf": 0}
LEAF_TEXT = ENCODER.encode(LEAF)
# Bytes that the CPU reads, and where they begin.
PlacedBytes = List[Tuple[int, memoryview]]
# The type, the shape and the bytes of an array.
ArrayBytes = Tuple[str, List[int], memoryview]


# What stands for a dict whose description is made once, with its number.
FIXED_TEXT = '{{"fixed":{}}}'


class FrozenDict(Dict[Any, Any]):
    """A dict of tensors, and of such dicts, that nobody changes.

    Its part of a packed state is computed once.
    """


class KnownDict(NamedTuple):
    """A dict that nobody changes, its description, and the tensors in it."""

    value: FrozenDict
    text: str
    leaves: list[Any]


class SeenTensor(NamedTuple):
    """A tensor of the CPU in the last commit, and where its memory was.

    Its bytes are that memory, and keep it. They are noted only when the same tensor comes again,
    as those of optimizers do: others would stay in memory until the next commit.
    """

    tensor: weakref.ref[Any]
    address: int
    dtype: Any
    bytes: ArrayBytes | None


class Layout(NamedTuple):
    """The places of arrays and tensors in a packed state, which are equal for most commits.

    forms: what a leaf must match for this layout. on_gpu: the forms of leaves on GPUs, with their
    places from the first of them on. orders: the orders of their dimensions, if they differ from
    their own. texts: a leaf's node of the description. offsets: where a leaf begins, counted from
    the end of the description. size: the bytes of all. seen, known: by id(). outline, description:
    of the last commit.
    """

    forms: list[Any]
    on_gpu: list[Any]
    orders: list[list[int] | None]
    texts: list[str]
    offsets: list[int]
    size: int
    seen: dict[int, SeenTensor]
    known: dict[int, KnownDict]
    outline: str
    description: bytes


class PackedContent:
    """The description of a packed state, its arrays that the CPU reads, and its tensors on GPUs.

    The arrays follow the description, and the tensors follow the arrays, so that one copy takes all
    tensors. `parts` and `places` are where they begin. What is equal to the content of the value
    `before` is not computed again.
    """

    def __init__(self, value: Any, before: Layout | None = None) -> None:
        self._leaves: list[Any] = []
        self._known: dict[int, KnownDict] = {}
        self._fixed_texts: list[str] = []
        self._before = before
        torch = sys.modules.get("torch")
        # A subclass of tensors may have other bytes.
        self._tensors = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        outline = self._encode(value)
        seen: dict[int, SeenTensor] = {}
        held = [
            None
            if type(leaf) in self._tensors and leaf.is_cuda
            else self._to_bytes(leaf, before, seen)
            for leaf in self._leaves
        ]
        forms = [
            (leaf.device, leaf.dtype, leaf.shape, leaf.stride())
            if data is None
            else (*data[:2], len(data[2]))
            for leaf, data in zip(self._leaves, held)
        ]
        self.tensors = [leaf for leaf, data in zip(self._leaves, held) if data is None]
        if before is not None and before.forms == forms:
            layout = before._replace(seen=seen, known=self._known)
        else:
            layout = self._place(forms, held, seen)
        if layout.outline != outline:
            pairs = zip(outline.split(LEAF_TEXT), [*layout.texts, ""])
            description = "".join(text for pair in pairs for text in pair).encode()
            layout = layout._replace(outline=outline, description=description)
        self.layout = layout
        self.description = layout.description
        begin = align_offset(HEADER_SIZE + len(self.description))
        self.parts: PlacedBytes = []
        self.places: list[int] = []
        for at, data in zip(layout.offsets, held):
            if data is None:
                self.places.append(begin + at)
            else:
                self.parts.append((begin + at, data[2]))
        self.size = begin + layout.size

    def dense_tensors(self) -> list[Any]:
        """Return the tensors on GPUs with their dimensions in the order of the packed state."""
        pairs = zip(self.tensors, self.layout.orders)
        return [tensor if order is None else tensor.permute(order) for tensor, order in pairs]

    def _encode(self, value: Any) -> str:
        """Return the outline of a value as text, with LEAF_TEXT for each array and tensor."""
        encoded = ENCODER.encode(self._outline(value))
        for number, text in enumerate(self._fixed_texts):
            encoded = encoded.replace(FIXED_TEXT.format(number), text, 1)
        return encoded

    def _outline(self, value: Any) -> Any:
        """Return a value in JSON's types, and append its arrays and tensors to the leaves."""
        kind = type(value)
        if kind in PLAIN_TYPES:
            return value
        if kind in self._tensors:
            self._leaves.append(value)
            return LEAF
        if kind is FrozenDict:
            return self._outline_fixed(value)
        if isinstance(value, (dict, Mapping)):
            # A model has hundreds of tensors: a call for each of them would take longest here.
            pairs = []
            for key, child in value.items():
                # First the key, as JSON has it: it may be a leaf itself.
                name = key if type(key) in PLAIN_TYPES else self._outline(key)
                if type(child) in self._tensors:
                    self._leaves.append(child)
                    pairs.append([name, LEAF])
                else:
                    pairs.append([name, self._outline(child)])
            return {"map": pairs}
        if isinstance(value, (list, tuple)):
            name = "list" if isinstance(value, list) else "tuple"
            return {
                name: [
                    child if type(child) in PLAIN_TYPES else self._outline(child) for child in value
                ]
            }
        if isinstance(value, (int, float, str)):
            return value
        self._leaves.append(value)
        return LEAF

    def _outline_fixed(self, value: FrozenDict) -> Any:
        known_dict = self._before.known.get(id(value)) if self._before is not None else None
        if known_dict is None or known_dict.value is not value:
            first = len(self._leaves)
            text = ENCODER.encode(self._outline({**value}))
            known_dict = KnownDict(value, text, self._leaves[first:])
        else:
            self._leaves += known_dict.leaves
        self._known[id(value)] = known_dict
        self._fixed_texts.append(known_dict.text)
        return {"fixed": len(self._fixed_texts) - 1}

    def _to_bytes(
        self, leaf: Any, before: Layout | None, seen: dict[int, SeenTensor]
    ) -> ArrayBytes:
        """Return the result of arrays.to_bytes, or its earlier result for the same memory."""
        if type(leaf) not in self._tensors or not leaf.is_cpu or not leaf.is_contiguous():
            # The bytes of another device, or in another order, are a copy.
            return arrays.to_bytes(leaf)
        address = leaf.data_ptr()
        dtype = leaf.dtype
        shape = [*leaf.shape]
        seen_tensor = before.seen.get(id(leaf)) if before is not None else None
        if seen_tensor is None or seen_tensor.tensor() is not leaf:
            seen[id(leaf)] = SeenTensor(weakref.ref(leaf), address, dtype, None)
            return arrays.to_bytes(leaf)
        data = seen_tensor.bytes
        is_same = seen_tensor.address == address and seen_tensor.dtype == dtype
        if data is None or not is_same or data[1] != shape:
            data = arrays.to_bytes(leaf)
            seen_tensor = SeenTensor(seen_tensor.tensor, address, dtype, data)
        seen[id(leaf)] = seen_tensor
        return data

    def _place(
        self, forms: list[Any], data_of_leaves: list[ArrayBytes | None], seen: dict[int, SeenTensor]
    ) -> Layout:
        """Find a place for each leaf: first for arrays, then for tensors."""
        offsets = [0] * len(forms)
        texts = [""] * len(forms)
        orders = []
        end = 0
        for on_gpu in (False, True):
            for number, data in enumerate(data_of_leaves):
                if (data is None) is not on_gpu:
                    continue
                leaf = self._leaves[number]
                node: dict[str, Any]
                if on_gpu:
                    size = leaf.numel() * leaf.element_size()
                    node = {"array": str(leaf.dtype), "shape": [*leaf.shape], "bytes": size}
                    orders.append(arrays.order_of(leaf))
                    if orders[-1] is not None:
                        node["order"] = orders[-1]
                else:
                    kind, shape, size = forms[number]
                    node = {"array": kind, "shape": shape, "bytes": size}
                offsets[number] = align_offset(end)
                end = offsets[number] + size
                texts[number] = ENCODER.encode({**node, "at": offsets[number]})
        numbers = [number for number, data in enumerate(data_of_leaves) if data is None]
        relative = [(forms[number], offsets[number] - offsets[numbers[0]]) for number in numbers]
        return Layout(forms, relative, orders, texts, offsets, end, seen, self._known, "", b"")


def align_offset(offset: int) -> int:
    return -(-offset // HEADER_SIZE) * HEADER_SIZE

"""The format of a packed state, in memory as in a checkpoint."""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from . import arrays
from .packed_content import HEADER_SIZE, PackedContent, align_offset

# What a packed state begins with: a mark, the key, the bytes of the description and of the whole,
# and the checksum of what follows, 0 in memory. A checksum of these fields is last.
PACKED_STATE_HEADER = struct.Struct("<8sqqQQQI")
PACKED_STATE_MARK = b"hvdkeep4"
# The notes of a shared state that the worker reads (worker/save_states.py): the file of its
# checkpoint, and the number of ranks without which it is of no use, empty where any number has one.
CHECKPOINT = "checkpoint"
FIXED_SIZE = "fixed size"
SUM = struct.Struct("<I")
# What building the value of a packed state raises that another module, or a stranger, has written.
UNUSABLE = (
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


class StepKey(NamedTuple):
    """The identity of a step: how far a training is, and in which launch.

    `series` grows when steps are counted anew, as with another number of steps in an epoch; it is
    -1 for a state of another run, and for a beginning. `launch` is the fence number of the launch
    that has made the step. The packed states of ranks in one launch belong together, even if each
    rank has a state of its own; those of two launches do not, although their step is equal.
    """

    series: int
    step: int
    launch: int = 0


class ShardPlace(NamedTuple):
    """Which shard of a state: that of `rank`, of `size` ranks."""

    size: int
    rank: int


class KeptValues(NamedTuple):
    """The state of a rank at a step: the shared state, and its own state, which may be empty."""

    key: StepKey
    values: dict[str, Any]
    own: dict[str, Any]


class Header(NamedTuple):
    """The header of a packed state: its key, and the sizes of its description and of all."""

    key: StepKey
    described: int
    size: int
    checksum: int
    # As it stands there.
    content: bytes


class PackedState(NamedTuple):
    """A complete packed state: where it was read from, its key, and its bytes.

    header: of the state when it was read. A packed state in memory may be replaced later, and `raw`
    then has the bytes of the new one.
    """

    place: str
    header: bytes
    key: StepKey
    tree: Any
    raw: memoryview

    @property
    def value(self) -> Any:
        """The kept value; its arrays are in the memory of the packed state.

        Raises LookupError, TypeError or ValueError for a packed state of another module.
        """
        data = align_offset(HEADER_SIZE + PACKED_STATE_HEADER.unpack_from(self.header)[4])

        def build(node: Any) -> Any:
            if not isinstance(node, dict):
                return node
            if "map" in node:
                return {build(key): build(child) for key, child in node["map"]}
            if "list" in node:
                return [build(child) for child in node["list"]]
            if "tuple" in node:
                return tuple(build(child) for child in node["tuple"])
            offset = data + node["at"]
            raw = self.raw[offset : offset + node["bytes"]]
            return arrays.from_bytes(node["array"], node["shape"], raw, node.get("order"))

        return build(self.tree)


def pack(key: StepKey, value: Any) -> bytearray:
    """Return a packed state with a checksum.

    `value` consists of numbers, texts, bytes, arrays and tensors, in lists, tuples and dicts.
    Raises TypeError for any other value.
    """
    content = PackedContent(value)
    raw = bytearray(content.size)
    view = memoryview(raw)
    write_content(view, content)
    for tensor, offset in zip(content.dense_tensors(), content.places):
        put_tensor(view, offset, tensor)
    header = header_of(key, content, zlib.crc32(view[HEADER_SIZE:]))
    view[: len(header)] = header
    return raw


def find_launch() -> int:
    """Return the fence number with which the agents admit this launch; 0 outside of a run."""
    fence = os.environ.get("HVD_FENCE", "")
    return int(fence) if fence.isdecimal() else 0


def read_packed(place: str, raw: memoryview, *, is_checked: bool = True) -> PackedState:
    """Read a packed state, which other bytes may follow; `place` is its name in messages.

    Raises ValueError for one that is incomplete or damaged. Unless `is_checked`, its arrays are not
    read to verify the checksum.
    """
    header = read_header(place, raw)
    size = header.size
    if is_checked and header.checksum and header.checksum != zlib.crc32(raw[HEADER_SIZE:size]):
        raise ValueError(f"{place} is damaged: its checksum is wrong")
    try:
        tree = json.loads(bytes(raw[HEADER_SIZE : HEADER_SIZE + header.described]))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{place} is damaged: {problem}") from problem
    return PackedState(place, header.content, header.key, tree, raw[:size])


def read_header(place: str, raw: memoryview) -> Header:
    """Return the header of a packed state.

    Raises ValueError for one that is incomplete.
    """
    if len(raw) < HEADER_SIZE:
        raise ValueError(f"{place} is too short for a state")
    header = bytes(raw[:HEADER_SIZE])
    mark, series, step, launch, described, size, checksum = PACKED_STATE_HEADER.unpack_from(header)
    (checked,) = SUM.unpack_from(header, PACKED_STATE_HEADER.size)
    if mark != PACKED_STATE_MARK or checked != zlib.crc32(header[: PACKED_STATE_HEADER.size]):
        raise ValueError(f"{place} has no complete state")
    if not HEADER_SIZE + described <= size <= len(raw):
        raise ValueError(f"{place} is shorter than the state that it should have")
    return Header(StepKey(series, step, launch), described, size, checksum, header)


def read_file(path: Path, *, is_checked: bool = True) -> PackedState:
    """Read the packed state of a file, as `read_packed` does.

    Raises OSError for a file that cannot be read or is a link, and ValueError for one that is
    empty, incomplete or damaged.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # The bytes stay readable as long as the packed state is in use.
        raw = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
        return read_packed(str(path), raw, is_checked=is_checked)
    finally:
        os.close(descriptor)


def notes_of(packed: PackedState) -> dict[str, str]:
    """Return the texts that a packed state has beside its parts, such as its run and checkpoint.

    No array of it is built, so that this needs none of the script's libraries.
    """
    tree = packed.tree if isinstance(packed.tree, dict) else {}
    pairs = tree.get("map")
    notes = {}
    for pair in pairs if isinstance(pairs, list) else []:
        if (
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(text, str) for text in pair)
        ):
            notes[pair[0]] = pair[1]
    return notes


def summed_header(packed: PackedState, checksum: int) -> bytes:
    """Return the header, with a checksum, that a packed state of the memory has on a volume."""
    header = PACKED_STATE_HEADER.pack(
        *PACKED_STATE_HEADER.unpack_from(packed.header)[:-1], checksum
    )
    return (header + SUM.pack(zlib.crc32(header))).ljust(HEADER_SIZE, b"\0")


def write_content(view: memoryview, content: PackedContent) -> None:
    """Write the description of a packed state, and those of its arrays that the CPU reads."""
    view[HEADER_SIZE : HEADER_SIZE + len(content.description)] = content.description
    for offset, part in content.parts:
        view[offset : offset + len(part)] = part


def put_tensor(view: memoryview, offset: int, tensor: Any) -> None:
    """Write a tensor of a GPU, and wait for it."""
    data = arrays.to_bytes(tensor)[2]
    view[offset : offset + len(data)] = data


def header_of(key: StepKey, content: PackedContent, checksum: int = 0) -> bytes:
    """Return the header of a packed state, which is written last and makes the state count."""
    described = len(content.description)
    header = PACKED_STATE_HEADER.pack(PACKED_STATE_MARK, *key, described, content.size, checksum)
    return header + SUM.pack(zlib.crc32(header))

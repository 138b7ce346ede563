"""Keeps the state of a training in its workers' memory, from which the next attempt goes on.

    import keep

    model.fit(..., callbacks=[..., keep.Callback()])         # with Keras

    state = keep.State(model=model, optimizer=optimizer)     # in a loop of your own
    for step in range(state.restore(), steps):
        ...
        state.commit()
    state.save()

A commit copies the state to shared memory of the worker, which outlives the rank and the attempt.
`restore` finds the newest step that is complete on any worker, or else in a checkpoint, and leaves
all ranks with that state. Nothing here changes how a training ends: where memory or disk is full,
the log says so. Outside of a run of the chart there are only checkpoints.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import importlib
import json
import mmap
import os
import queue
import re
import shutil
import struct
import sys
import threading
import time
import weakref
import zlib
from pathlib import Path
from typing import Any, Callable, ClassVar, List, Mapping, NamedTuple, Sequence, Tuple

# In the memory volume of a worker. Each run has a folder of its own inside.
FOLDER = "/dev/shm/hvd-keep"  # noqa: S108 - for the pod's user alone
# What a record begins with: a mark, the key, the bytes of the description and of the whole record,
# and the checksum of what follows, 0 in memory. A checksum of these fields is last.
HEADER = struct.Struct("<8sqqQQQI")
MARK = b"hvdkeep3"
SUM = struct.Struct("<I")
BEGIN = 64
# The memory of a record is a multiple of this many bytes, and stays where its description becomes a
# little longer or shorter: to register new memory with a GPU takes longer than a commit.
ROOM = 1 << 16
# A snapshot of the state on the GPU takes at most this part of what is free there.
SNAPSHOT_PART = 4
# Of values that have no cycles.
ENCODER = json.JSONEncoder(check_circular=False, separators=(",", ":"))
PLAIN = frozenset([type(None), bool, int, float, str])
# Types of PyTorch of which one call copies many tensors; each tensor of another type has a call.
COPIED_TOGETHER = (
    "bfloat16",
    "bool",
    "float16",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "int8",
    "uint8",
)
# Seconds that the end of the process waits for copies: a GPU may wait for a rank that is lost.
END_WITHIN = 5.0
# Bytes of a broadcast: new memory is slow, and this much is used again.
PIECE = 1 << 24
# A variable of Keras with random numbers, which is the rank's own.
SEED = "seed_generator_state"
# What Keras' callbacks learn in a training (EarlyStopping, ReduceLROnPlateau, ModelCheckpoint).
LEARNED = ("best", "best_epoch", "best_weights", "cooldown_counter", "wait")
OTHER = "set another OUTPUT_PATH"
# Types whose ranks have different parts of the weights, of PyTorch and DeepSpeed.
SHARDED = {
    "FullyShardedDataParallel",
    "FSDPModule",
    "ZeroRedundancyOptimizer",
    "ZeROOptimizer",
    "DeepSpeedZeroOptimizer",
    "DTensor",
}
# Names of types as arrays have them: of NumPy, without objects and records, and of ml_dtypes.
NUMPY_TYPE = re.compile(r"[<>|=][biufcmMSU]\d{1,9}(\[\d{0,9}[a-zA-Z]{1,2}\])?")
ML_TYPE = re.compile(r"b?float\d[a-z0-9_]*|u?int\d{1,2}")
# What building the value of a record raises that another module, or a stranger, has written.
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
# Bytes that the CPU reads, and where they begin, counted from the end of the description.
Parts = List[Tuple[int, memoryview]]


class Key(NamedTuple):
    """How far a training has come. `series` grows when its steps are counted anew, as with other
    steps of an epoch; it is -1 for what another run has left, and for a beginning.
    """

    series: int
    step: int


class Record(NamedTuple):
    """A complete record: where it was read from, how new it is, and its bytes.

    launch: the epoch of the launch that wrote it. In one launch, the states of ranks belong
    together, also where each has something of its own, such as statistics of its batches.
    """

    place: str
    key: Key
    launch: int
    tree: Any
    raw: memoryview

    @property
    def value(self) -> Any:
        """What was kept; its arrays are in the memory of the record.

        Raises LookupError, TypeError or ValueError for a record of another module.
        """
        data = _aligned(BEGIN + HEADER.unpack_from(self.raw)[4])

        def build(node: Any) -> Any:
            if not isinstance(node, dict):
                return node
            if "map" in node:
                return {build(key): build(each) for key, each in node["map"]}
            if "list" in node:
                return [build(each) for each in node["list"]]
            if "tuple" in node:
                return tuple(build(each) for each in node["tuple"])
            at = data + node["at"]
            return _array(node["array"], node["shape"], self.raw[at : at + node["bytes"]])

        return build(self.tree)


def pack(key: Key, value: Any) -> bytearray:
    """A record of numbers, texts, bytes, arrays and tensors, in lists, tuples and dicts.

    It has a checksum. Raises TypeError for anything else.
    """
    content = Content(value)
    raw = bytearray(content.size)
    view = memoryview(raw)
    _fill(view, content)
    for tensor, at in zip(content.tensors, content.places):
        _put(view, at, tensor)
    header = _header(key, content, zlib.crc32(view[BEGIN:]))
    view[: len(header)] = header
    return raw


def _launch() -> int:
    """The epoch of this launch, by which the agents admit it; 0 outside of a run."""
    epoch = os.environ.get("HVD_EPOCH", "")
    return int(epoch) if epoch.isdecimal() else 0


def read(place: str, raw: memoryview) -> Record:
    """Read a record, which may be followed by other bytes; `place` is its name in messages.

    Raises ValueError for one that is incomplete or damaged.
    """
    if len(raw) < BEGIN:
        raise ValueError(f"{place} is too short for a state")
    mark, series, step, launch, described, size, checksum = HEADER.unpack_from(raw)
    if mark != MARK or SUM.unpack_from(raw, HEADER.size)[0] != zlib.crc32(raw[: HEADER.size]):
        raise ValueError(f"{place} has no complete state")
    if not BEGIN + described <= size <= len(raw):
        raise ValueError(f"{place} is shorter than the state that it should have")
    if checksum and checksum != zlib.crc32(raw[BEGIN:size]):
        raise ValueError(f"{place} is damaged: its checksum is wrong")
    try:
        tree = json.loads(bytes(raw[BEGIN : BEGIN + described]))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{place} is damaged: {problem}") from problem
    return Record(place, Key(series, step), launch, tree, raw[:size])


def read_file(path: Path) -> Record:
    """Read the record of a file.

    Raises OSError for a file that cannot be read or is a link, and ValueError for one that is
    empty, incomplete or damaged.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # The bytes stay readable as long as the record is in use.
        return read(str(path), memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)))
    finally:
        os.close(descriptor)


class Finisher:
    """A thread in which waits what has to wait for a GPU, in the order in which it came."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, call: Callable[[], None]) -> None:
        """Let the thread call this, which raises nothing."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="keep", daemon=True)
            self._thread.start()
            atexit.register(self.wait, END_WITHIN)
        self._calls.put(call)

    def wait(self, seconds: float | None = None) -> None:
        """Return when all calls before this have ended, or after some seconds."""
        # A process that was forked has no such thread, and nothing to wait for.
        if self._thread is not None and self._thread.is_alive():
            reached = threading.Event()
            self._calls.put(reached.set)
            reached.wait(seconds)

    def _run(self) -> None:
        while True:
            self._calls.get()()


finisher = Finisher()


class Unfinished:
    """A record that a GPU still writes, and which counts when it has all its bytes."""

    def __init__(
        self, path: Path, view: memoryview, header: bytes, wait: Callable[[], None]
    ) -> None:
        self.path = path
        self.is_complete = False
        self.has_ended = threading.Event()
        self._view = view
        self._header = header
        self._wait = wait

    def finish(self) -> None:
        """Write the header as soon as all bytes are there. A failure of the GPU is logged."""
        try:
            self._wait()
            self._view[: len(self._header)] = self._header
            self.is_complete = True
        except RuntimeError as problem:
            say(f"{self.path}: the GPU failed before it had copied the state: {problem}")
        finally:
            self.has_ended.set()


class Memory:
    """The memory of a record; `pinned` is a tensor of it, once it is registered with a GPU."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.map = mmap.mmap(descriptor, size)
        self.pinned: Any = None

    def pin(self, torch: Any) -> None:
        """Register the memory, so that a GPU writes it while the CPU goes on.

        Raises AttributeError or RuntimeError where that is not possible.
        """
        pinned = torch.frombuffer(self.map, dtype=torch.uint8)
        cudart = torch.cuda.cudart()
        error = cudart.cudaHostRegister(pinned.data_ptr(), len(self.map), 0)
        if int(error):
            with contextlib.suppress(RuntimeError):
                # CUDA tells its last error once more, to the next kernel that is started.
                torch.ones(1, device="cuda")
            raise RuntimeError(f"cudaHostRegister returned {error}")
        self.pinned = pinned

        def release(pinned: Any) -> None:
            cudart.cudaHostUnregister(pinned.data_ptr())

        # It has the tensor, and by that the memory, until then.
        weakref.finalize(self, release, pinned).atexit = False


class Gpu:
    """Copies the tensors of a state from GPUs to the memory of its records.

    A snapshot on the GPU takes its turn among the kernels of the training. From there, one copy
    writes the memory beside the next step. The snapshot is used again when that copy has ended.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._can_pin = True
        # What the snapshot was made for.
        self._layout: list[Any] = []
        self._snapshot: Any = None
        self._stream: Any = None
        # Views of the snapshot, with the numbers of the tensors that are copied there by one call.
        self._groups: list[tuple[list[Any], list[int]]] = []
        self._has_told = False

    def copy(self, content: Content, memory: Memory, view: memoryview) -> Callable[[], None] | None:
        """Copy the tensors to a record.

        Return what waits for the end of the copy and raises RuntimeError if it fails, or None
        where it has ended. Raises RuntimeError for errors of CUDA, also of earlier kernels.
        """
        tensors = content.tensors
        places = content.places
        torch = self._torch
        device = tensors[0].device
        with torch.no_grad(), torch.cuda.device(device):
            if not self._pin(memory):
                for tensor, at in zip(tensors, places):
                    _put(view, at, tensor)
                return None
            layout = [(each.device, each.dtype, each.shape, each.stride()) for each in tensors]
            if layout != self._layout:
                self._prepare(tensors, layout, content)
            if self._snapshot is None:
                self._copy_each(tensors, places, memory)
                return None
            for views, numbers in self._groups:
                self._copy_together(views, [tensors[number] for number in numbers])
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                there = memory.pinned[places[0] : places[0] + len(self._snapshot)]
                there.copy_(self._snapshot, non_blocking=True)
                # Who waits for it leaves the CPU to others.
                event = torch.cuda.Event(blocking=True)
                event.record()
        return functools.partial(_wait_for, event, device, self._snapshot, memory)

    def _pin(self, memory: Memory) -> bool:
        if memory.pinned is None and self._can_pin:
            try:
                memory.pin(self._torch)
            except (AttributeError, RuntimeError) as problem:
                self._can_pin = False
                self._tell(f"cannot register the shared memory with the GPU ({problem})")
        return memory.pinned is not None

    def _prepare(self, tensors: list[Any], layout: list[Any], content: Content) -> None:
        """Make the snapshot for a new layout, if there is room for it."""
        torch = self._torch
        self._layout = layout
        self._snapshot = None
        self._groups.clear()
        if len({device for device, *_ in layout}) > 1:
            self._tell("the state is on several GPUs")
            return
        first = content.places[0]
        size = content.size - first
        free = torch.cuda.mem_get_info()[0]
        needs = f"a snapshot of the state on the GPU needs {_mib(size)} of {_mib(free)} free"
        if size > free // SNAPSHOT_PART:
            self._tell(f"{needs}, but may have a quarter of them")
            return
        try:
            self._snapshot = torch.empty(size, dtype=torch.uint8, device=layout[0][0])
        except RuntimeError as problem:
            self._tell(f"{needs}: {problem}")
            return
        self._stream = torch.cuda.Stream()
        groups: dict[Any, tuple[list[Any], list[int]]] = {}
        for number, (tensor, at) in enumerate(zip(tensors, content.places)):
            if not tensor.numel():
                continue
            begin = at - first
            data = self._snapshot[begin : begin + tensor.numel() * tensor.element_size()]
            is_dense = tensor.is_contiguous()
            # One kernel copies many tensors of the same strides, also those of a length of 1.
            typed = data.view(tensor.dtype)
            there = (
                typed.as_strided(tensor.shape, tensor.stride())
                if is_dense
                else typed.reshape(tensor.shape)
            )
            views, numbers = groups.setdefault((tensor.dtype, is_dense), ([], []))
            views.append(there)
            numbers.append(number)
        self._groups = [*groups.values()]

    def _copy_together(self, views: list[Any], tensors: list[Any]) -> None:
        together = getattr(self._torch, "_foreach_copy_", None)
        if together is not None and str(views[0].dtype).partition(".")[2] in COPIED_TOGETHER:
            together(views, tensors)
            return
        for there, tensor in zip(views, tensors):
            there.copy_(tensor, non_blocking=True)

    def _copy_each(self, tensors: list[Any], places: list[int], memory: Memory) -> None:
        """Copy each tensor directly to the record, and wait once."""
        for tensor, at in zip(tensors, places):
            size = tensor.numel() * tensor.element_size()
            if size:
                there = memory.pinned[at : at + size].view(tensor.dtype).reshape(tensor.shape)
                there.copy_(tensor, non_blocking=True)
        for device in {tensor.device for tensor in tensors}:
            self._torch.cuda.current_stream(device).synchronize()

    def _tell(self, reason: str) -> None:
        """Say once why the training waits for each commit."""
        if not self._has_told:
            self._has_told = True
            say(f"{reason}: the training waits for the copy of each commit")


def _wait_for(event: Any, device: Any, *_used: Any) -> None:
    """Wait for an event of a GPU; until then, what it uses is not given back.

    Raises RuntimeError for errors of CUDA.
    """
    # Otherwise the thread takes memory of the first GPU.
    with sys.modules["torch"].cuda.device(device):
        event.synchronize()


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


class Slots:
    """Two files in the worker's memory; from the first record on, at least one is complete."""

    def __init__(self, folder: Path, name: str) -> None:
        self.paths = [folder / f"{name}.{letter}" for letter in "ab"]
        self._memory: dict[Path, Memory] = {}
        self._newest: Path | None = None
        # The newest, while a GPU still writes it.
        self._unfinished: Unfinished | None = None
        self._gpu: Gpu | None = None
        # As they were read last.
        self._keys: dict[Path, Key] = {}

    def records(self) -> list[Record]:
        """Read the complete records, at most two. Files with another content are logged."""
        # Another State of this process may have been here.
        finisher.wait()
        self._settle()
        found = []
        for path in self.paths:
            try:
                found.append(read_file(path))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as problem:
                # An interrupted commit leaves the other record complete.
                say(str(problem))
        self._keys = {Path(record.place): record.key for record in found}
        return found

    def keep(self, key: Key) -> None:
        """This record is the newest; the next one takes the place of the other.

        Where no record that was read has this key, the next one takes the first file.
        """
        self._newest = next((path for path, is_ in self._keys.items() if is_ == key), None)

    def write(self, key: Key, value: Any) -> None:
        """Write a record in place of the older one. What is on a GPU may follow a little later.

        Raises OSError where memory is full, TypeError for what cannot be kept, and RuntimeError
        for a GPU that fails.
        """
        content = Content(value)
        # Until the newest record is complete, the older one is the only one that is.
        self._settle()
        path = self.paths[self._newest == self.paths[0]]
        memory = self._fit(path, content.size)
        view = memoryview(memory.map)[: content.size]
        # Nothing of this record counts until all of it is there.
        view[:BEGIN] = bytes(BEGIN)
        _fill(view, content)
        header = _header(key, content)
        wait = None
        if content.tensors:
            self._gpu = self._gpu or Gpu(sys.modules["torch"])
            wait = self._gpu.copy(content, memory, view)
        if wait is None:
            view[: len(header)] = header
            self._newest = path
        else:
            self._unfinished = Unfinished(path, view, header, wait)
            finisher.add(self._unfinished.finish)

    def _settle(self) -> None:
        """Wait until no GPU writes a record. One that has failed makes room for the next."""
        if self._unfinished is not None:
            self._unfinished.has_ended.wait()
            if self._unfinished.is_complete:
                self._newest = self._unfinished.path
            self._unfinished = None

    def _fit(self, path: Path, size: int) -> Memory:
        """The memory of a file, which has room for the record, in bytes.

        Raises OSError where there is no room for it; the file is empty then.
        """
        memory = self._memory.pop(path, None)
        if memory is None or not size <= len(memory.map) < size + 2 * ROOM:
            del memory
            memory = self._make(path, -(-size // ROOM) * ROOM)
        self._memory[path] = memory
        return memory

    def _make(self, path: Path, size: int) -> Memory:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.pwrite(descriptor, bytes(BEGIN), 0)
            os.ftruncate(descriptor, size)
            # A page that is missing would end the rank when it is written (SIGBUS).
            os.posix_fallocate(descriptor, 0, size)
            return Memory(descriptor, size)
        except OSError:
            os.ftruncate(descriptor, 0)
            raise
        finally:
            os.close(descriptor)


def _fill(view: memoryview, content: Content) -> None:
    """Write the description of a record, and of its arrays those that the CPU reads."""
    view[BEGIN : BEGIN + len(content.description)] = content.description
    for at, part in content.parts:
        view[at : at + len(part)] = part


def _put(view: memoryview, at: int, tensor: Any) -> None:
    """Write a tensor of a GPU, which the CPU waits for."""
    data = _bytes_of(tensor)[2]
    view[at : at + len(data)] = data


def _header(key: Key, content: Content, checksum: int = 0) -> bytes:
    """What is written last, with which a record counts."""
    described = len(content.description)
    header = HEADER.pack(MARK, *key, _launch(), described, content.size, checksum)
    return header + SUM.pack(zlib.crc32(header))


def _aligned(at: int) -> int:
    return -(-at // BEGIN) * BEGIN


class Content:
    """What a record has: its description, arrays that the CPU reads, and tensors on GPUs.

    The arrays follow the description, and the tensors follow the arrays, so that one copy takes all
    tensors. `places` says where the tensors begin.
    """

    def __init__(self, value: Any) -> None:
        self.parts: Parts = []
        self.tensors: list[Any] = []
        self._end = 0
        self._nodes: list[dict[str, Any]] = []
        # Descriptions of tensors by their types and shapes, of which a model has few.
        self._kinds: dict[Any, dict[str, Any]] = {}
        torch = sys.modules.get("torch")
        # A subclass of tensors may have other bytes.
        self._tensors = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        tree = self._flatten(value)
        for node in self._nodes:
            node["at"] = self._place(node["bytes"])
        self.description = ENCODER.encode(tree).encode()
        data = _aligned(BEGIN + len(self.description))
        self.parts = [(data + at, part) for at, part in self.parts]
        self.places = [data + node["at"] for node in self._nodes]
        self.size = data + self._end

    def _flatten(self, value: Any) -> Any:
        """A value as JSON has it; its arrays and tensors are taken down."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind in self._tensors and value.is_cuda:
            return self._describe_tensor(value)
        if isinstance(value, (dict, Mapping)):
            return {"map": [[self._flatten(k), self._flatten(v)] for k, v in value.items()]}
        if isinstance(value, (list, tuple)):
            name = "list" if isinstance(value, list) else "tuple"
            return {name: [self._flatten(each) for each in value]}
        if isinstance(value, (int, float, str)):
            return value
        name, shape, data = _bytes_of(value)
        at = self._place(len(data))
        self.parts.append((at, data))
        return {"array": name, "shape": shape, "bytes": len(data), "at": at}

    def _describe_tensor(self, tensor: Any) -> dict[str, Any]:
        key = (tensor.dtype, tensor.shape)
        known = self._kinds.get(key)
        if known is None:
            size = tensor.numel() * tensor.element_size()
            known = {"array": str(tensor.dtype), "shape": [*tensor.shape], "bytes": size, "at": 0}
            self._kinds[key] = known
        node = known.copy()
        self._nodes.append(node)
        self.tensors.append(tensor)
        return node

    def _place(self, size: int) -> int:
        """Where so many bytes begin."""
        at = _aligned(self._end)
        self._end = at + size
        return at


def _bytes_of(value: Any) -> tuple[str, list[int], memoryview]:
    """The type, the shape and the bytes of an array, tensor or variable, without a copy of memory
    that the CPU reads. Raises TypeError for anything else, and for arrays of objects or records.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes", [len(value)], memoryview(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        return str(value.dtype), list(value.shape), memoryview(flat.view(torch.uint8).numpy())
    if hasattr(value, "read_value"):
        # A variable of TensorFlow: its own numpy() copies, and read_value() takes twice as long.
        value = value.value()
    elif _is_variable(value):
        return _bytes_of(value.value)
    if not hasattr(value, "__array__"):
        raise TypeError(f"keep: a {type(value).__name__} cannot be kept: {value!r:.80}")
    numpy = _numpy()
    array = numpy.ascontiguousarray(value)
    if array.dtype.hasobject or array.dtype.names:
        raise TypeError(f"keep: an array of {array.dtype} cannot be kept")
    # NumPy does not know the types of ml_dtypes, as bfloat16, by anything but their names.
    is_numpy = array.dtype.type.__module__ == "numpy"
    kind = array.dtype.str if is_numpy else array.dtype.name
    return kind, list(numpy.shape(value)), memoryview(array.reshape(-1).view(numpy.uint8))


def _numpy() -> Any:
    # Every framework brings it; those who keep bytes alone need not have it.
    import numpy

    return numpy


def _array(kind: str, shape: list[int], data: memoryview) -> Any:
    """An array or tensor of this type and shape over these bytes; bytes are a copy."""
    if kind == "bytes":
        return bytes(data)
    if kind.startswith("torch."):
        torch: Any = sys.modules["torch"]
        dtype = getattr(torch, kind.partition(".")[2])
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"{kind} is no type of numbers")
        if not data:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).reshape(shape)
    if ML_TYPE.fullmatch(kind):
        kind = getattr(importlib.import_module("ml_dtypes"), kind)
    elif not NUMPY_TYPE.fullmatch(kind):
        raise ValueError(f"{kind!r:.80} is no type of an array's numbers")
    return _numpy().frombuffer(data, kind).reshape(shape)


class Ranks:
    """This process alone; the subclasses are ranks that have found each other."""

    rank = 0
    size = 1
    local_rank = 0

    def gather(self, told: Any) -> list[Any]:
        """Return what each rank tells, by rank. All ranks have to call this."""
        return [told]

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with what `root` has in it. All ranks have to call this."""

    def broadcast(self, raw: memoryview | None, size: int, root: int) -> memoryview:
        """Return the bytes that `root` has, on all ranks, which all have to call this.

        `raw` is None, or ignored, on the other ranks. `size` is the number of bytes, alike on all.
        """
        if raw is None or self.rank != root:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(AttributeError, OSError):
                # Much of the time is that in which the kernel makes memory.
                memory.madvise(mmap.MADV_HUGEPAGE)
            raw = memoryview(memory)
        for at in range(0, size, PIECE):
            self.send(raw[at : at + PIECE], root)
        return raw


class HorovodRanks(Ranks):
    """Ranks of Horovod, with TensorFlow or PyTorch."""

    def __init__(self, hvd: Any, framework: str) -> None:
        self.hvd = hvd
        self.framework = framework
        self.rank = hvd.rank()
        self.size = hvd.size()
        self.local_rank = hvd.local_rank()

    def gather(self, told: Any) -> list[Any]:
        """Return what each rank tells, by rank."""
        return [*self.hvd.allgather_object(told, name="keep.restore.steps")]

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with what `root` has in it, by a broadcast of the rank's framework."""
        module: Any = sys.modules[self.framework]
        if self.framework == "torch":
            tensor = module.frombuffer(piece, dtype=module.uint8)
            self.hvd.broadcast_(tensor, root, name="keep.restore")
            return
        if self.rank == root:
            tensor = module.constant(_numpy().frombuffer(piece, "uint8"))
        else:
            # What it has does not matter.
            tensor = module.zeros(len(piece), "uint8")
        received = self.hvd.broadcast(tensor, root, name="keep.restore")
        if self.rank != root:
            piece[:] = memoryview(received)


class TorchRanks(Ranks):
    """Ranks of torch.distributed, without Horovod."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.distributed = torch.distributed
        self.rank = self.distributed.get_rank()
        self.size = self.distributed.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))

    def gather(self, told: Any) -> list[Any]:
        """Return what each rank tells, by rank."""
        answers: list[Any] = [None] * self.size
        self.distributed.all_gather_object(answers, told)
        return answers

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with what `root` has in it, over the GPUs where NCCL is the backend."""
        tensor = here = self.torch.frombuffer(piece, dtype=self.torch.uint8)
        if self.distributed.get_backend() == "nccl":
            tensor = here.cuda()
        self.distributed.broadcast(tensor, root)
        if tensor is not here and self.rank != root:
            here.copy_(tensor)


def find_ranks() -> Ranks:
    """Return the ranks that this process is one of: Horovod's, else those of torch.distributed.

    Without either, this process is alone. Raises RuntimeError where WORLD_SIZE says that it is not.
    """
    for name in ("tensorflow", "torch"):
        hvd: Any = sys.modules.get(f"horovod.{name}")
        if hvd is not None and hvd.is_initialized():
            return HorovodRanks(hvd, name)
    torch: Any = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return TorchRanks(torch)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Each would take itself for the only one, and write what the others write.
        raise RuntimeError(
            f"keep: this is one of {os.environ['WORLD_SIZE']} ranks, but neither Horovod, with "
            "TensorFlow or PyTorch, nor torch.distributed has begun: call hvd.init() or "
            "init_process_group() first; keep does not know the ranks of other libraries"
        )
    return Ranks()


def say(message: str) -> None:
    """Write a line to the log of this rank."""
    print(f"[keep] {message}", file=sys.stderr, flush=True)


def choose(answers: Sequence[Mapping[str, Any]]) -> tuple[Any, int]:
    """The step to go on from, and the first rank that has it.

    `steps` of an answer are those that a rank can read, `own` those for which it has what is its
    own. The newest step counts, but the one before if a rank was ended between its own part of the
    newest commit and the shared one: that step is made again. A step is a Key. Raises IndexError if
    no rank has any.
    """
    steps = sorted({step for answer in answers for step in answer["steps"]}, reverse=True)
    # A rank that comes back to a worker may find what it had there long ago.
    found = [answer["own"] for answer in answers if answer["own"]]
    owners = [own for own in found if max(own) >= steps[:2][-1]]
    complete = [step for step in steps[:2] if all(step in own for own in owners)]
    step = complete[0] if complete else steps[0]
    return step, next(rank for rank, answer in enumerate(answers) if step in answer["steps"])


class State:
    """What a training is made of, between two steps.

    `parts` are models, optimizers, variables, arrays, or numbers and texts in lists and dicts; of
    these, the ones that are not changed in place are attributes: `state.losses = [...]`. `own` is
    what each rank has for itself, as its generator of random numbers: a new rank keeps what it was
    made with. `step` is the number of commits, unless commit() gets another one.

    Every `minutes`, rank 0 writes a checkpoint to the folder `output` (default: OUTPUT_PATH, and
    without that there are no checkpoints). Outside of a run of the chart, which HVD_RUN_ID names,
    nothing is kept in memory.

    Raises ValueError for a name that another State of the script has or that is no name of a file,
    and for a part that has no variables yet or that is sharded.
    """

    _all: ClassVar[weakref.WeakValueDictionary[str, State]] = weakref.WeakValueDictionary()
    # The names of states with which a fit() has come to its end.
    _fitted: ClassVar[set[str]] = set()

    def __init__(
        self,
        name: str = "main",
        own: Any = None,
        output: str | os.PathLike[str] | None = None,
        minutes: float = 10.0,
        **parts: Any,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
            raise ValueError(
                f"keep: {name!r} cannot be the name of a State: use letters and digits"
            )
        if name in State._all:
            raise ValueError(
                f"keep: this script has a State {name!r} already: give each one a name of its own, "
                "as in State(name='critic', ...)"
            )
        self.name = name
        self.step = 0
        self.own = own
        self._parts = list(parts)
        self.__dict__.update(parts)
        self.is_restored = False
        self._steps_of_epoch = 0
        self._series = 0
        # What callbacks of Keras have learned, which the beginning of a fit() resets.
        self._learned: dict[str, Any] = {}
        folder = output or os.environ.get("OUTPUT_PATH")
        self._checkpoint = Path(folder, f"keep-{name}.state") if folder else None
        self._every = minutes * 60
        self._saved_at = time.monotonic()
        self._saving: threading.Thread | None = None
        self._slots: dict[str, Slots] = {}
        self._run = run = os.environ.get("HVD_RUN_ID", "")
        # Without the run's identity, a state could be that of another training.
        self._folder = Path(os.environ.get("HVD_KEEP", FOLDER), Path(run).name) if run else None
        for part_name, part in parts.items():
            if hasattr(part, "trainable_variables") and not getattr(part, "built", True):
                raise ValueError(
                    f"keep: {part_name} has no variables yet, so that nothing of it would be kept: "
                    "build the model first, as with model.build(input_shape)"
                )
            if found := _find_sharded(part):
                raise ValueError(
                    f"keep: {part_name} is sharded ({found}): each rank has another part of it, "
                    "but keep hands the state of one rank to all: keep it with "
                    "torch.distributed.checkpoint, or use DistributedDataParallel"
                )
            self._build_optimizer(part_name, part)
        State._all[name] = self

    def commit(self, step: int | None = None) -> None:
        """Keep the state after a step: in memory, and now and then in a checkpoint.

        `step` is the number of the step, by default one more than the last one. Each rank has to
        call this. Where memory is full, the log says so and only checkpoints are written from then
        on. Raises TypeError for what cannot be kept, and RuntimeError where the ranks are unknown.
        """
        step = self.step + 1 if step is None else int(step)
        self._series += step < self.step
        self.step = step
        ranks = find_ranks()
        values, own = self._values()
        try:
            # First what is the rank's own, so that the shared part is never without it.
            if own:
                self._memory(f"rank-{ranks.rank}", lambda slots: slots.write(self._key, own))
            if ranks.local_rank == 0:
                self._memory("shared", lambda slots: slots.write(self._key, values))
        except OSError as problem:
            self._give_up(problem)
        due = time.monotonic() - self._saved_at > self._every
        is_free = self._saving is None or not self._saving.is_alive()
        if due and is_free and ranks.rank == 0 and self._checkpoint:
            self._saved_at = time.monotonic()
            self._saving = threading.Thread(
                target=write_atomically,
                args=[self._checkpoint, pack(self._key, values)],
                kwargs={"is_raised": False},
            )
            self._saving.start()

    def save(self) -> None:
        """Write a checkpoint on rank 0 now, as at the end of a training.

        Without a folder for it, nothing is written. Raises OSError where it cannot be written, and
        RuntimeError where the ranks are unknown.
        """
        finisher.wait()
        if find_ranks().rank == 0 and self._checkpoint:
            if self._saving is not None:
                self._saving.join()
            write_atomically(self._checkpoint, pack(self._key, self._values()[0]))

    def restore(self) -> int:
        """Leave all ranks with the newest state, and return its step; each rank has to call this.

        Where there is none, all ranks begin with the state of rank 0. Raises ValueError for a
        checkpoint of another model, and where no checkpoint could be written, unless memory has a
        newer state. Raises TypeError for what cannot be kept, and RuntimeError where the ranks are
        unknown.
        """
        ranks = find_ranks()
        records = self._records()
        own = {record.key: record for record in self._memory(f"rank-{ranks.rank}", Slots.records)}
        checkpoint, problem = self._read_checkpoint() if ranks.rank == 0 else (None, "")
        if checkpoint is not None:
            records.setdefault(checkpoint.key, checkpoint)
        here = self._key if self.is_restored else Key(-1, self.step)
        others = self._records_of_others(ranks) if ranks.local_rank == 0 else {}
        told = {
            "steps": [*records, here] if ranks.rank == 0 else [*records],
            "own": [*own],
            "others": {number: [*found] for number, found in others.items()},
            "has own": bool(self._values()[1]),
            "problem": problem,
        }
        answers = ranks.gather(told)
        held = [{*answer["own"]} for answer in answers]
        for answer in answers:
            for number, keys in answer["others"].items():
                # The ranks have other workers than before, as a spare in the place of a lost one.
                if number < ranks.size:
                    answers[number]["own"] = [*{*answers[number]["own"], *keys}]
        if problem:
            say(problem)
        wrong = next((answer["problem"] for answer in answers if answer["problem"]), "")
        # What is in memory is newer, and the next checkpoint replaces a wrong one.
        if wrong and all(key.series < 0 for answer in answers for key in answer["steps"]):
            raise ValueError(wrong)
        key, root = choose(answers)
        if key.series < 0:
            # Each rank refuses what cannot be kept before it trains.
            Content(self._values()[0])
        record = records.get(key)
        is_fresh = ranks.rank == root and key not in records
        launches = ranks.gather(record.launch if record else None)
        # Also those that have the state of another launch, as a worker that was away has.
        lacking = [
            rank
            for rank, launch in enumerate(launches)
            if rank != root and (launch is None or launch != launches[root])
        ]
        if record is not None and ranks.rank in lacking:
            say(f"{record.place} has step {key.step} of another launch than rank {root}: not used")
            record = None
        if lacking:
            # Sent from one rank to all others where a worker is new.
            raw = memoryview(pack(key, self._values()[0])) if is_fresh else record and record.raw
            size = ranks.gather(len(raw or b""))[root]
            sent = ranks.broadcast(raw, size, root)
            record = record or read(f"rank {root}", sent)
        if record is not None and not is_fresh:
            self._apply(record)
        moved = [
            rank
            for rank, answer in enumerate(answers)
            if key in answer["own"] and key not in held[rank]
        ]
        if moved:
            given = {n: bytes(others[n][key].raw) for n in moved if key in others.get(n, {})}
            for found in ranks.gather(given):
                if ranks.rank in found:
                    own.setdefault(key, read("another worker", memoryview(found[ranks.rank])))
        if key in own:
            self._apply_own(own[key].value)
        if ranks.rank == root and record is not None and not is_fresh:
            to = f", sent to {lacking}" if lacking else ""
            if key.series < 0:
                to += f"; another run has left it: to begin anew, {OTHER}"
            say(f"goes on after step {key.step}, found in {record.place}{to}")
            new = [
                r for r, told in enumerate(answers) if told["has own"] and key not in told["own"]
            ]
            if new:
                say(
                    f"ranks {new} have no random numbers and the like of their own for step "
                    f"{key.step}: they go on with those that the script has made"
                )
        attempt = os.environ.get("HVD_ATTEMPT", "")
        is_later = attempt not in ("", "0", "1")
        if is_fresh and not self.is_restored and ranks.rank == root and is_later:
            say(
                f"no worker's memory and no checkpoint has a state of this run: attempt {attempt} "
                f"begins at step {key.step}"
            )
        if is_fresh and self.is_restored:
            say("no memory has what was committed: goes on with the state of this process")
        self.step = key.step
        self._series = max(key.series, 0)
        self.is_restored = True
        if ranks.local_rank == 0:
            self._memory("shared", lambda slots: slots.keep(key))
        self._memory(f"rank-{ranks.rank}", lambda slots: slots.keep(key))
        return self.step

    def epochs(self, steps: int) -> int:
        """Return the number of finished epochs, of `steps` steps each.

        If an epoch had other steps before, as with another number of ranks, one that was begun is
        made again.
        """
        before = self._steps_of_epoch or steps
        self._steps_of_epoch = steps
        if before != steps:
            self.step = self.step // before * steps
            self._series = self._series + 1
        return self.step // steps

    @property
    def _key(self) -> Key:
        return Key(self._series, self.step)

    def _memory(self, name: str, use: Any) -> Any:
        """What `use` returns for these slots; an empty list where there is no memory to use.

        `use` is a function of Slots. Its OSError is raised.
        """
        if self._folder is None:
            return []
        if name not in self._slots:
            self._slots[name] = Slots(self._folder, f"{self.name}-{name}")
        return use(self._slots[name])

    def _give_up(self, problem: OSError) -> None:
        """Go on without memory, which is full, and leave what is there."""
        needed = 2 * Content(self._values()[0]).size
        assert self._folder is not None  # noqa: S101
        volume = os.statvfs(next(place for place in self._folder.parents if place.exists()))
        say(
            f"cannot keep the state in memory, so that a fault costs the steps since the last "
            f"checkpoint: {problem}: two copies need {needed >> 20} MiB, and of "
            f"{volume.f_frsize * volume.f_blocks >> 20} MiB of shared memory "
            f"{volume.f_frsize * volume.f_bavail >> 20} MiB are free: raise train.state of the "
            "spec, or shm.sizeLimit"
        )
        self._folder = None

    def _values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What all ranks have alike, and what is this rank's own, if there is any."""
        seeds: list[Any] = []
        parts = {name: _read(getattr(self, name), seeds) for name in self._parts}
        own = {"own": _read(self.own, []), "seeds": seeds}
        values = {"parts": parts, "steps of epoch": self._steps_of_epoch, "run": self._run}
        return values, own if seeds or self.own is not None else {}

    def _records(self) -> dict[Key, Record]:
        """The records in this worker's memory that fit, by their keys; others are logged.

        What other runs have left in the memory is removed.
        """
        if self._folder is not None:
            for other in {*self._folder.parent.glob("*")} - {self._folder}:
                # The state of another run, which is not this one's.
                shutil.rmtree(other, ignore_errors=True)
        found = {}
        for record in self._memory("shared", Slots.records):
            if wrong := self._find_difference(record):
                say(wrong)
            else:
                found[record.key] = record
        return found

    def _records_of_others(self, ranks: Ranks) -> dict[int, dict[Key, Record]]:
        """What other ranks than those of this worker have kept here for themselves."""
        if self._folder is None:
            return {}
        pattern = re.compile(rf"{re.escape(self.name)}-rank-(\d{{1,7}})\.[ab]")
        found: dict[int, dict[Key, Record]] = {}
        for path in sorted(self._folder.glob("*")):
            match = pattern.fullmatch(path.name)
            if match is None or int(match[1]) == ranks.rank:
                continue
            with contextlib.suppress(OSError, ValueError):
                record = read_file(path)
                found.setdefault(int(match[1]), {})[record.key] = record
        return found

    def _read_checkpoint(self) -> tuple[Record | None, str]:
        """The checkpoint, and what is wrong with it or its folder.

        Both are None and empty where there is no checkpoint yet. A checkpoint of another run has
        the series -1.
        """
        if self._checkpoint is None:
            return None, ""
        folder = self._checkpoint.parent
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return None, f"keep: this user cannot write checkpoints to {folder}: {OTHER}"
        try:
            record = read_file(self._checkpoint)
            if wrong := self._find_difference(record):
                return None, f"keep: {wrong}: remove it, or {OTHER}"
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError) as problem:
            return None, f"keep: {problem}"
        # However many steps another run has made, this one's memory is newer.
        is_of_run = record.value["run"] == self._run
        return record if is_of_run else record._replace(key=Key(-1, record.key.step)), ""

    def _find_difference(self, record: Record) -> str:
        """Why a record is not the state of this script, or an empty text."""
        try:
            kept = record.value
            trees = kept["parts"]
            _ = kept["run"]
            if trees.keys() != {*self._parts}:
                return f"{record.place} has the parts {[*trees]}, this script {self._parts}"
            for name, tree in trees.items():
                part = getattr(self, name)
                here = _form(part, _read(part, []))
                there = _form(part, tree)
                if here != there:
                    return f"{record.place}: {name} has the shapes {there}, here {here}"
        except UNUSABLE as problem:
            return f"{record.place} has no state of this module: {problem!r}"
        return ""

    def _apply(self, record: Record) -> None:
        """Give all parts what a record has of them."""
        kept = record.value
        self._steps_of_epoch = kept["steps of epoch"]
        for name, tree in kept["parts"].items():
            part = getattr(self, name)
            setattr(self, name, _write(part, tree))
            if _is_callback(part):
                self._learned[name] = copy.deepcopy(tree)

    def _learn(self) -> None:
        """Give callbacks of Keras what they had learned, after fit() has reset them."""
        for name, kept in self._learned.items():
            _write(getattr(self, name), kept)
        self._learned.clear()

    def _apply_own(self, kept: dict[str, Any]) -> None:
        """Give this rank what it has kept for itself."""
        self.own = _write(self.own, kept["own"])
        for variable, number in zip(self._values()[1].get("seeds", ()), kept["seeds"]):
            variable.assign(number)

    def _build_optimizer(self, name: str, part: Any) -> None:
        """Give an optimizer of Keras its variables, which it makes in the first step otherwise.

        Raises ValueError where it is not clear which model it trains.
        """
        if not hasattr(part, "apply_gradients"):
            return
        if getattr(part, "built", getattr(part, "_built", False)):
            return
        models = [getattr(self, each) for each in self._parts]
        trained = [m.trainable_variables for m in models if hasattr(m, "trainable_variables")]
        build = getattr(part, "build", getattr(part, "_create_all_weights", None))
        if len(trained) != 1 or build is None:
            raise ValueError(
                f"keep: {name} has no variables yet, and {len(trained)} models are kept with it: "
                f"build it first with those that it trains, as {name}.build("
                "model.trainable_variables)"
            )
        build(trained[0])


def write_atomically(path: Path, content: bytearray, *, is_raised: bool = True) -> None:
    """Write a file that is complete under its name at any moment.

    A writer of an earlier attempt, which has lost its network, may still write to the same volume:
    each has a file of its own, and what it has not renamed yet is removed. Raises OSError where the
    file cannot be written, or logs that unless `is_raised`.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for left in path.parent.glob(f".{path.name}*.new"):
            left.unlink()
        try:
            with os.fdopen(os.open(beside, flags, 0o666), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
    except OSError as problem:
        if is_raised:
            raise
        say(f"cannot write a checkpoint: {problem}")


def _variables(part: Any) -> list[Any] | None:
    """The variables of a model, an optimizer or a list; None for what has none."""
    if _is_variable(part):
        return [part]
    if isinstance(part, (list, tuple)):
        return [*part] if part and all(map(_is_variable, part)) else None
    found = getattr(part, "variables", None)
    if found is None:
        return None
    variables = [*(found() if callable(found) else found)]
    # Keras 2 does not count it.
    rate = getattr(part, "learning_rate", None)
    if _is_variable(rate) and all(rate is not each for each in variables):
        variables.append(rate)
    return variables


def _is_variable(part: Any) -> bool:
    return hasattr(part, "assign") and hasattr(part, "shape")


def _is_callback(part: Any) -> bool:
    return hasattr(part, "on_epoch_end") and not hasattr(part, "get_state")


def _is_seed(variable: Any) -> bool:
    return SEED in str(getattr(variable, "path", getattr(variable, "name", "")))


def _find_sharded(part: Any) -> str:
    """The type by which each rank has other weights in a part, or an empty text."""
    modules = (
        part.modules() if hasattr(part, "load_state_dict") and hasattr(part, "modules") else ()
    )
    groups = getattr(part, "param_groups", ())
    parameters = [each for group in groups for each in group["params"]]
    if modules:
        parameters += part.parameters()
    every = [part, getattr(part, "optimizer", None), *modules, *parameters]
    found = {kind.__name__ for each in every for kind in type(each).__mro__} & SHARDED
    return ", ".join(sorted(found))


def _read(part: Any, seeds: list[Any]) -> Any:
    """What is to be kept of a part; the variables with random numbers go to `seeds`."""
    if hasattr(part, "state_dict"):
        return part.state_dict()
    if hasattr(part, "bit_generator"):
        return part.bit_generator.state
    if hasattr(part, "get_state"):
        return part.get_state()
    if _is_callback(part):
        return {name: vars(part)[name] for name in LEARNED if name in vars(part)}
    if isinstance(part, dict):
        return {key: _read(each, seeds) for key, each in part.items()}
    variables = _variables(part)
    if variables is None:
        return part
    seeds += filter(_is_seed, variables)
    return [each for each in variables if not _is_seed(each)]


def _write(part: Any, kept: Any) -> Any:
    """Restore a part from its kept state; return the part, or the value that replaces it."""
    if _variables(part) is not None and not hasattr(part, "load_state_dict"):
        for variable, array in zip(_read(part, []), kept):
            variable.assign(array)
        return part
    # What takes the arrays themselves must not see the next record in their memory.
    kept = copy.deepcopy(kept)
    if hasattr(part, "load_state_dict"):
        part.load_state_dict(kept)
    elif hasattr(part, "bit_generator"):
        part.bit_generator.state = kept
    elif hasattr(part, "set_state"):
        part.set_state(kept)
    elif _is_callback(part):
        # A checkpoint may come from anybody: it sets nothing else.
        vars(part).update({name: kept[name] for name in LEARNED if name in kept})
    elif isinstance(part, dict):
        return {key: _write(part.get(key), each) for key, each in kept.items()}
    else:
        return kept
    return part


def _form(part: Any, kept: Any) -> Any:
    """Return what must match in a part and in its kept state: shapes, or numbers of parameters."""
    if hasattr(part, "param_groups"):
        return [len(group["params"]) for group in kept["param_groups"]]
    if hasattr(part, "state_dict"):
        return {key: tuple(each.shape) for key, each in kept.items() if hasattr(each, "shape")}
    if _variables(part) is not None:
        return [tuple(each.shape) for each in kept]
    return tuple(kept.shape) if hasattr(kept, "shape") else None


def Callback(state: State | None = None, every: int = 1) -> Any:  # noqa: N802 - as a class of Keras
    """Return a Keras callback that restores the state, and commits it after `every` batches.

    A fit() that goes on leaves out the epochs and batches that are done: with data whose order
    follows from the epoch, all weights become those of a training without a fault. On other
    backends than TensorFlow, whose batches cannot be left out, it commits at the end of an epoch.

    Without a `state`, it keeps the model and its optimizer. fit() raises ValueError where it does
    not know the steps of an epoch, and where another fit() has used the state. Raises ImportError
    where there is neither TensorFlow nor Keras.
    """
    # Keras 2 or 3, whichever this TensorFlow was told to use.
    tensorflow: Any = sys.modules.get("tensorflow")
    keras = tensorflow.keras if tensorflow is not None else importlib.import_module("keras")
    base: Any = keras.callbacks.Callback
    leaves_batches_out = keras.backend.backend() == "tensorflow"

    class Keeper(base):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            self.state = state or State(model=self.model, optimizer=self.model.optimizer)
            self.steps = self.params.get("steps")
            if not self.steps:
                raise ValueError("keep: fit() has to know the steps of an epoch: steps_per_epoch")
            if self.state.name in State._fitted:
                raise ValueError(
                    f"keep: a fit() has used the state {self.state.name!r}: give another one a "
                    "state of its own, as in keep.Callback(keep.State(name='second', ...))"
                )
            if not self.state.is_restored:
                self.state.restore()
            # Keras 3 begins with this epoch; Keras 2 with its own, whose batches are left out.
            self.model._initial_epoch = self.state.epochs(self.steps)
            self.done = self.state.step
            self.at_once = int(getattr(self.model, "steps_per_execution", None) or 1)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.state._learn()
            self.before = epoch * self.steps
            left_out = min(self.steps, self.state.step - self.before)
            if left_out > 0:
                self.model.train_function = skipping(self.model, left_out, self.at_once)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            # The number at the end is that of the first or of the last batch of an execution.
            self.done = self.before + min(self.steps, batch + self.at_once)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            # The last one of an epoch counts when the epoch's end does, so that none is left out.
            if leaves_batches_out and self.done < self.before + self.steps:
                self.commit()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.commit()

        def commit(self) -> None:
            if self.done >= self.state.step + every:
                self.state.commit(self.done)

        def on_train_end(self, logs: Any = None) -> None:
            self.model._initial_epoch = None
            self.state.step = max(self.state.step, self.done)
            self.state.save()
            State._fitted.add(self.state.name)

    return Keeper()


def skipping(model: Any, left: int, at_once: int) -> Any:
    """A train function that reads so many batches, and then leaves its place to the model's."""
    train = model.train_function

    def skip(iterator: Any) -> dict[str, Any]:
        nonlocal left
        for _ in range(at_once):
            next(iterator)
        left -= at_once
        if left <= 0:
            model.train_function = train
        return {}

    return skip

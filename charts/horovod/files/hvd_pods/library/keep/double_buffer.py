"""The two files of a state in the worker's memory, which are written in turn."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from .completion import PendingWrite, completion_thread
from .gpu import Gpu, Memory
from .log import log
from .packed_content import HEADER_SIZE, Layout, PackedContent
from .packed_state import PackedState, StepKey, header_of, read_file, read_header, write_content

# The memory of a packed state is a multiple of this many bytes, and stays where its description
# becomes a little longer or shorter: to register new memory with a GPU takes longer than a commit.
MEMORY_MULTIPLE_BYTES = 1 << 16


class DoubleBuffer:
    """Two files in the worker's memory; after the first commit, at least one is complete."""

    def __init__(self, folder: Path, name: str) -> None:
        self.paths = [folder / f"{name}.{letter}" for letter in "ab"]
        self._memory: dict[Path, Memory] = {}
        self._newest: Path | None = None
        # The newest, while a GPU still writes it.
        self._pending_write: PendingWrite | None = None
        self._gpu: Gpu | None = None
        self._layout: Layout | None = None
        # The file that `make_room` prepared last.
        self._room = self.paths[0]
        # Of those that are complete.
        self._keys: dict[Path, StepKey] = {}

    def packed_states(self) -> list[PackedState]:
        """Read the complete packed states, at most two. Log files with other content."""
        # Another State of this process may have been here.
        completion_thread.wait()
        self._settle()
        packed_states = []
        for path in self.paths:
            try:
                packed_states.append(read_file(path))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as problem:
                # An interrupted commit leaves the other packed state complete.
                log(str(problem))
        self._keys = {Path(packed.place): packed.key for packed in packed_states}
        return packed_states

    def keep(self, key: StepKey) -> None:
        """Mark the packed state with this key as the newest; the next one replaces the other.

        If no packed state that was read has this key, the next one replaces the first file.
        """
        self._newest = next((path for path, is_ in self._keys.items() if is_ == key), None)

    def write(self, key: StepKey, value: Any) -> None:
        """Write a packed state in place of the older one. Tensors on a GPU may follow later.

        Raises OSError if memory is full, TypeError for a value that cannot be kept, and
        RuntimeError if a GPU fails.
        """
        content = PackedContent(value, self._layout)
        self._layout = content.layout
        # Until the newest packed state is complete, the older one is the only one that is.
        self._settle()
        path = self.paths[self._newest == self.paths[0]]
        memory = self._fit(path, content.size)
        view = memoryview(memory.map)[: content.size]
        # Nothing of this packed state counts until all of it is there.
        view[:HEADER_SIZE] = bytes(HEADER_SIZE)
        self._keys.pop(path, None)
        write_content(view, content)
        header = header_of(key, content)
        wait = None
        if content.tensors:
            self._gpu = self._gpu or Gpu(sys.modules["torch"])
            wait = self._gpu.copy(content, memory, view)
        if wait is None:
            view[: len(header)] = header
            self._complete(path, key)
        else:
            self._pending_write = PendingWrite(path, key, view, header, wait)
            completion_thread.add(self._pending_write.finish)

    def find(self, key: StepKey) -> memoryview | None:
        """Return the bytes of the newest packed state if it has this key.

        A GPU may still be writing it.
        """
        self._settle()
        path = self._newest
        if path is None or self._keys.get(path) != key:
            return None
        if path not in self._memory:
            # An earlier process has written it.
            return read_file(path).raw
        view = memoryview(self._memory[path].map)
        return view[: read_header(str(path), view).size]

    def make_room(self, size: int) -> memoryview:
        """Return the memory of the older packed state, for one that another rank sends.

        The new state counts when `accept` gets its header. Raises OSError if memory is full.
        """
        self._room = self.paths[self._newest == self.paths[0]]
        view = memoryview(self._fit(self._room, size).map)[:size]
        view[:HEADER_SIZE] = bytes(HEADER_SIZE)
        self._keys.pop(self._room, None)
        return view

    def accept(self, key: StepKey, header: bytes) -> None:
        """Write the header of a packed state that is complete in the memory of `make_room`."""
        self._memory[self._room].map[: len(header)] = header
        self._complete(self._room, key)

    def _complete(self, path: Path, key: StepKey) -> None:
        self._keys[path] = key
        self._newest = path

    def _settle(self) -> None:
        """Wait until no GPU writes a packed state. The next write replaces one that has failed."""
        if self._pending_write is not None:
            self._pending_write.has_ended.wait()
            if self._pending_write.is_complete:
                self._complete(self._pending_write.path, self._pending_write.key)
            self._pending_write = None

    def _fit(self, path: Path, size: int) -> Memory:
        """Return the memory of a file, with room for a packed state of `size` bytes.

        Raises OSError if there is no room for it; the file is empty then.
        """
        memory = self._memory.pop(path, None)
        if memory is None or not size <= len(memory.map) < size + 2 * MEMORY_MULTIPLE_BYTES:
            del memory
            memory = self._make(path, -(-size // MEMORY_MULTIPLE_BYTES) * MEMORY_MULTIPLE_BYTES)
        self._memory[path] = memory
        return memory

    def _make(self, path: Path, size: int) -> Memory:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.pwrite(descriptor, bytes(HEADER_SIZE), 0)
            os.ftruncate(descriptor, size)
            # A page that is missing would end the rank when it is written (SIGBUS).
            os.posix_fallocate(descriptor, 0, size)
            return Memory(descriptor, size)
        except OSError:
            os.ftruncate(descriptor, 0)
            raise
        finally:
            os.close(descriptor)

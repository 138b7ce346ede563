"""Passes on the output of processes by whole lines, so that lines of several do not mix."""

from __future__ import annotations

import os
from collections.abc import Callable

# The most bytes to pass to the kernel, or to read from it, at once.
IO_CHUNK_BYTES = 1 << 16
# The most bytes to buffer until the end of their line arrives.
MAX_LINE_BYTES = 1 << 20


class Stream:
    """Passes the output of a process on to a file of this one; both are descriptors.

    `look` receives the output, with tags, before it is written. `tag` is put before each line. A
    progress bar, which goes back to the beginning of its line, has the tag once.
    """

    def __init__(
        self,
        source: int,
        target: int,
        look: Callable[[bytes], None] = lambda _: None,
        tag: bytes = b"",
    ) -> None:
        os.set_blocking(source, False)
        self.source = source
        self._target = target
        self._look = look
        self._tag = tag
        # Whether the next byte begins a line.
        self._begins = True
        self._rest = bytearray()
        self.is_open = True

    def pass_on(self) -> bool:
        """Pass on the lines that have arrived. Return whether more may already be available.

        At the end of the output, `is_open` becomes False. Raises OSError, for instance when the
        target has no reader any more.
        """
        try:
            data = os.read(self.source, IO_CHUNK_BYTES)
        except BlockingIOError:
            return False
        # A progress bar goes back to the beginning of its line instead of ending it. The buffered
        # text has no end of a line, and is not searched again: a rank may write single bytes.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        end += len(self._rest) if end else 0
        self._rest += data
        if not data:
            self.is_open = False
            self._rest += b"\n" if self._rest else b""
        if not data or len(self._rest) - end > MAX_LINE_BYTES:
            end = len(self._rest)
        complete = bytes(self._rest[:end])
        del self._rest[:end]
        tagged = self._add_tags(complete)
        self._look(tagged)
        write(self._target, tagged)
        return bool(data)

    def give_up(self) -> None:
        """Pass on an incomplete line without waiting for its end."""
        if self._rest:
            write(self._target, self._add_tags(bytes(self._rest) + b"\n"))
            self._rest.clear()

    def _add_tags(self, content: bytes) -> bytes:
        if not self._tag or not content:
            return content
        lines = content.split(b"\n")
        begins = [self._begins, *[True] * (len(lines) - 1)]
        self._begins = not lines[-1]
        # The text after the last end of a line is empty so far.
        tagged = [
            self._tag + line if is_begin else line for line, is_begin in zip(lines[:-1], begins)
        ]
        last = self._tag + lines[-1] if lines[-1] and begins[-1] else lines[-1]
        return b"\n".join([*tagged, last])


def write(target: int, content: bytes) -> None:
    """Write all of the content to a descriptor. Raises OSError."""
    while content:
        content = content[os.write(target, content) :]

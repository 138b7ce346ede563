"""A program that the agent has started: its standard streams, and how it ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Callable, Mapping, NamedTuple, Sequence

from hvd_pods.pod import processes
from hvd_pods.pod.streams import IO_CHUNK_BYTES
from hvd_pods.protocol import frames
from hvd_pods.worker import io_loop, supervisor


class ProgramListener(NamedTuple):
    """Functions to call when a program writes output, takes input, or ends."""

    output: Callable[[bytes, bytes], None]
    taken: Callable[[int], None]
    ended: Callable[[Program], None]


class Program:
    """A program below a supervisor (worker/supervisor.py). Raises OSError if it cannot start.

    `exit_code` is None until the program and all its descendants have ended. It is negative for a
    signal. `has_ended`: all of the program's output has been read, too.
    """

    def __init__(
        self,
        own_loop: io_loop.Loop,
        argv: Sequence[str],
        environment: Mapping[str, str],
        listener: ProgramListener,
    ) -> None:
        self.exit_code: int | None = None
        # Whether the supervisor was killed, so that it could not end the program's descendants.
        self.is_orphaned = False
        self._loop = own_loop
        self._listener = listener
        self._unread = bytearray()
        self._input_has_ended = False
        pipes: list[tuple[int, int]] = []
        try:
            for _ in range(4):
                pipes.append(os.pipe())
            (program_in, own_in), *outputs = pipes
            program_ends = [program_in, *(writer for _, writer in outputs)]
            self.pid = supervisor.start(argv, environment, program_ends)
        except OSError:
            for pipe in pipes:
                for end in pipe:
                    os.close(end)
            raise
        for end in program_ends:
            os.close(end)
        os.set_blocking(own_in, False)
        self._stdin: int | None = own_in
        (out, _), (errors, _), (status, _) = outputs
        self._outputs = {out: frames.OUTPUT, errors: frames.ERRORS}
        self._status: int | None = status
        self.read_output(True)
        self._loop.watch(status, io_loop.READ, lambda: self._take_status(status))

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None and not self._outputs

    @property
    def unread(self) -> int:
        """Return the bytes of input that the program has not taken."""
        return len(self._unread)

    def read_output(self, is_wanted: bool) -> None:
        """Start or stop reading the program's output."""
        for end in self._outputs:
            self._loop.watch(end, io_loop.READ if is_wanted else 0, self._reader(end))

    def give(self, content: bytes) -> None:
        """Send input to the program; empty content ends the input."""
        self._input_has_ended = self._input_has_ended or not content
        self._unread += content
        self._write()

    def pass_on(self, number: int) -> None:
        """Send the program a signal, if it is one of PASSED_ON."""
        if number in supervisor.PASSED_ON and self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill all processes of the program; its supervisor then reports how the program ended."""
        for pid in list(processes.descendants(self.pid)):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the streams that are open."""
        for end in [*self._outputs, self._status, self._stdin]:
            if end is not None:
                self._loop.close(end)
        self._outputs = {}
        self._status = None
        self._stdin = None

    def _reader(self, end: int) -> Callable[[], None]:
        return lambda: self._read(end)

    def _read(self, end: int) -> None:
        data = os.read(end, IO_CHUNK_BYTES)
        if data:
            self._listener.output(self._outputs[end], data)
            return
        self._loop.close(end)
        del self._outputs[end]
        self._listener.ended(self)

    def _write(self) -> None:
        taken = 0
        try:
            while self._unread and self._stdin is not None:
                number = os.write(self._stdin, self._unread[:IO_CHUNK_BYTES])
                del self._unread[:number]
                taken += number
        except BlockingIOError:
            self._loop.watch(self._stdin or 0, io_loop.WRITE, self._write)
        except OSError:
            # The program has closed its input, and continues.
            self._input_has_ended = True
            taken += len(self._unread)
            self._unread.clear()
        if self._stdin is None:
            taken += len(self._unread)
            self._unread.clear()
        elif not self._unread:
            self._loop.unwatch(self._stdin)
            if self._input_has_ended:
                self._loop.close(self._stdin)
                self._stdin = None
        if taken:
            self._listener.taken(taken)

    def _take_status(self, status: int) -> None:
        """Read the supervisor's report of how the program ended; all its descendants have ended."""
        text = os.read(status, 64)
        self._loop.close(status)
        self._status = None
        if text:
            end = int(text)
            self.exit_code = -os.WTERMSIG(end) if os.WIFSIGNALED(end) else os.WEXITSTATUS(end)
        else:
            self.exit_code = -signal.SIGKILL
            self.is_orphaned = True
        self._listener.ended(self)

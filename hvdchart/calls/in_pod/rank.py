"""Makes a call on one rank: fetches the function from the call server, and answers with its result.

Arguments: the server's port, and the number of the call. The server's host and the run's secret are
those of the notices.
"""

from __future__ import annotations

import importlib
import io
import linecache
import os
import pickle
import socket
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).absolute().parents[3]
sys.path[:0] = [str(ROOT), "/horovod/bin"]
from hvd_pods.common import notices
from hvdchart.calls.in_pod import output, wire

# Seconds to reach the server.
CONNECT_WITHIN = 30.0


def load_cloudpickle() -> Any:
    """The caller's cloudpickle, which was sent along; an image may have another version."""
    # Horovod imports the image's own.
    for name in [name for name in sys.modules if name.partition(".")[0] == "cloudpickle"]:
        del sys.modules[name]
    sys.path.insert(0, str(ROOT / "site"))
    try:
        return importlib.import_module("cloudpickle")
    finally:
        sys.path.pop(0)


def make_call(cloudpickle: Any, content: bytes) -> tuple[bytes, bytes]:
    """Call the function; the kind and the content of the answer.

    Whatever the function raises, and what cannot be pickled, is a failure to answer with.
    """
    stream = io.BytesIO(content)
    try:
        function, arguments, keywords = pickle.load(stream)  # noqa: S301 - the caller's own
    except Exception as error:  # noqa: BLE001 - whatever a module raises that it imports
        hint = "give the folder of your own modules with code=, packages belong into the image"
        return describe(cloudpickle, error, f"the function cannot be loaded: {error!r}; {hint}")
    for file, text in pickle.load(stream).items():  # noqa: S301 - the caller's own
        # An image may have another file of that name. Without a time, Python looks for none.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        result = function(*arguments, **keywords)
    except BaseException as error:  # noqa: BLE001 - whatever a function raises
        return describe(cloudpickle, error)
    try:
        data = cloudpickle.dumps(result)
    except Exception as error:  # noqa: BLE001 - whatever the result's own methods raise
        what = f"the result, of {type(result)}, cannot be pickled: {error!r}"
        return describe(cloudpickle, error, f"{what}; return plain data or arrays")
    if len(data) > wire.LARGEST_RESULT:
        what = f"the result has {len(data)} bytes, and a call returns {wire.LARGEST_RESULT}"
        return describe(cloudpickle, None, f"{what}; write it to a volume and return its path")
    return wire.RESULT, data


def describe(
    cloudpickle: Any, error: BaseException | None, problem: str = ""
) -> tuple[bytes, bytes]:
    """The kind and the content of a failure, which `_raise` of hvdchart.calls.connection reads.

    The content is the host, the traceback, the problem, if it is not the function's own, and the
    exception, which is empty unless the caller is to raise it.
    """
    text = ""
    pickled = b""
    if error is not None:
        # Without the frame of make_call.
        inner = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, inner))
    if isinstance(error, Exception) and not problem:
        with suppress(Exception):
            pickled = cloudpickle.dumps(error)
    return wire.FAILURE, pickle.dumps((socket.gethostname(), text, problem, pickled))


def answer(connection: socket.socket, stream: IO[bytes]) -> bool:
    """Fetch the call, make it, and send the answer; whether it is a result.

    `stream` reads from the connection. Raises SystemExit when the server has ended the call.
    """
    message = wire.read_message(partial(wire.read_frame, stream), wire.LARGEST_CALL)
    if message is None:
        raise SystemExit("the call has ended")
    kind, data = make_call(load_cloudpickle(), message.data)
    sys.stdout.flush()
    sys.stderr.flush()
    for frame in wire.frames(kind, data):
        connection.sendall(frame)
    # The server has passed on all of it when it closes the connection, however slow its caller is.
    connection.settimeout(None)
    with suppress(OSError):
        connection.recv(1)
    return kind == wire.RESULT


def main() -> int:
    """Make the call; 1 when it has failed."""
    port, number = sys.argv[1:]

    # Each line is seen at once, also without PYTHONUNBUFFERED.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    # As if the function's script were in the folder of the code: without the two folders from
    # above, and the one of this program.
    sys.path[:3] = [str(Path.cwd())]
    host, _, secret = notices.parse_address(os.environ[notices.ADDRESS])

    def connect(*what: int) -> socket.socket:
        """A connection for the call (0), a stream of the rank's output, or its memory limit."""
        made = socket.create_connection((host, int(port)), CONNECT_WITHIN)
        made.settimeout(None)
        made.sendall(
            f"{secret} {number} {os.environ['RANK']} {' '.join(map(str, what))}\n".encode()
        )
        return made

    output.divert(connect)
    with connect(0) as connection, connection.makefile("rb") as stream:
        return 0 if answer(connection, stream) else 1


if __name__ == "__main__":
    sys.exit(main())

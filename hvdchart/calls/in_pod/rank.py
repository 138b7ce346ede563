"""Make a call on one rank: fetch the function from the call server, and send its result.

Arguments: the server's port, and the number of the call. The server's host and the run's secret are
those for notices.
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
from hvd_pods.pod import notices
from hvdchart.calls.in_pod import output, wire

# Seconds to connect to the server.
CONNECT_TIMEOUT_SECONDS = 30.0


def load_cloudpickle() -> Any:
    """Return the caller's cloudpickle, sent with the call; an image may have another version."""
    # Horovod imports the image's own cloudpickle.
    for name in [name for name in sys.modules if name.partition(".")[0] == "cloudpickle"]:
        del sys.modules[name]
    sys.path.insert(0, str(ROOT / "site"))
    try:
        return importlib.import_module("cloudpickle")
    finally:
        sys.path.pop(0)


def make_call(cloudpickle: Any, content: bytes) -> tuple[bytes, bytes]:
    """Call the function; return the kind and the content of the answer.

    An exception of the function is a failure, as is a result that cannot be pickled.
    """
    stream = io.BytesIO(content)
    try:
        function, arguments, keywords = pickle.load(stream)  # noqa: S301 - the caller's own
    except Exception as error:  # noqa: BLE001 - whatever a module raises that it imports
        hint = "give the folder of your own modules with code=, packages belong into the image"
        return describe(cloudpickle, error, f"the function cannot be loaded: {error!r}; {hint}")
    for file, text in pickle.load(stream).items():  # noqa: S301 - the caller's own
        # The image may have another file of this name. Without a modification time, Python does not
        # check the file.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        result = function(*arguments, **keywords)
    except BaseException as error:  # noqa: BLE001 - whatever a function raises
        return describe(cloudpickle, error)
    try:
        data = cloudpickle.dumps(result)
    except Exception as error:  # noqa: BLE001 - whatever the result's own methods raise
        problem = f"the result, of {type(result)}, cannot be pickled: {error!r}"
        return describe(cloudpickle, error, f"{problem}; return plain data or arrays")
    if len(data) > wire.MAX_RESULT_BYTES:
        problem = f"the result has {len(data)} bytes, and a call returns {wire.MAX_RESULT_BYTES}"
        return describe(cloudpickle, None, f"{problem}; write it to a volume and return its path")
    return wire.RESULT, data


def describe(
    cloudpickle: Any, error: BaseException | None, problem: str = ""
) -> tuple[bytes, bytes]:
    """Return the kind and the content of a failure; hvdchart.calls.connection._raise reads them.

    The content is the host, the traceback, the problem if it is not an exception of the function,
    and the exception. The exception is empty if the caller must not raise it.
    """
    text = ""
    pickled = b""
    if error is not None:
        # Leave out the frame of make_call.
        inner = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, inner))
    if isinstance(error, Exception) and not problem:
        with suppress(Exception):
            pickled = cloudpickle.dumps(error)
    return wire.FAILURE, pickle.dumps((socket.gethostname(), text, problem, pickled))


def answer(connection: socket.socket, stream: IO[bytes]) -> bool:
    """Fetch the call, make it, and send the answer; return whether it is a result.

    `stream` reads from the connection. Raises SystemExit when the server has ended the call.
    """
    message = wire.read_message(partial(wire.read_frame, stream), wire.MAX_CALL_BYTES)
    if message is None:
        raise SystemExit("the call has ended")
    kind, data = make_call(load_cloudpickle(), message.data)
    sys.stdout.flush()
    sys.stderr.flush()
    for frame in wire.frames(kind, data):
        connection.sendall(frame)
    # The server closes the connection when all output is passed on, even to a slow caller.
    connection.settimeout(None)
    with suppress(OSError):
        connection.recv(1)
    return kind == wire.RESULT


def main() -> int:
    """Make the call; return 1 when it fails."""
    port, number = sys.argv[1:]

    # Flush each line at once, also without PYTHONUNBUFFERED.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    # Set the path as if the function's script were in the folder of the code: remove the two
    # folders added above, and the folder of this program.
    sys.path[:3] = [str(Path.cwd())]
    host, _, secret = notices.parse_address(os.environ[notices.ADDRESS])

    def connect(*numbers: int) -> socket.socket:
        """Connect for the call (0), for a stream of the rank's output, or for its memory limit."""
        connection = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_SECONDS)
        connection.settimeout(None)
        connection.sendall(
            f"{secret} {number} {os.environ['RANK']} {' '.join(map(str, numbers))}\n".encode()
        )
        return connection

    output.divert(connect)
    with connect(0) as connection, connection.makefile("rb") as stream:
        return 0 if answer(connection, stream) else 1


if __name__ == "__main__":
    sys.exit(main())

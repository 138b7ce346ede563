"""Staging goes on where it broke, with a real web server that breaks the connection."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.unit.hvd_pods.worker.staging import Volume


class Ranges(BaseHTTPRequestHandler):
    """Sends what is asked for of CONTENT, and of the first answer only a half."""

    CONTENT = bytes(range(256)) * 4096

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "bytes=0-")
        server = self.server
        assert isinstance(server, Server)
        server.asked.append(asked)
        body = self.CONTENT[int(asked.removeprefix("bytes=").removesuffix("-")) :]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if len(server.asked) == 1 else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A web server that remembers which parts it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Ranges)
        self.asked: list[str] = []


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


# As `curl -C - -O` does.
DOWNLOAD = """
import os, sys, urllib.request
size = os.path.getsize("part") if os.path.exists("part") else 0
request = urllib.request.Request(sys.argv[1], headers={"Range": f"bytes={size}-"})
with urllib.request.urlopen(request) as answer, open("part", "ab") as file:
    while chunk := answer.read1():
        file.write(chunk)
    sys.exit(answer.length and "the connection broke")
"""


@pytest.mark.slow
def test_download_that_broke_goes_on_where_it_ended(volume: Volume, server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}/part"
    command = shlex.join([sys.executable, "-c", DOWNLOAD, url])
    code, log = volume.stage(command)
    assert (code, volume.path.exists()) == (1, False)
    assert "the connection broke" in log
    code, log = volume.stage(command)
    assert code == 0, log
    assert (volume.path / "part").read_bytes() == Ranges.CONTENT
    assert server.asked == ["bytes=0-", f"bytes={len(Ranges.CONTENT) // 2}-"]

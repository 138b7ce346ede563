"""Waiting until a server is ready."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from devtools.localkube.probe import is_ok, wait_until_ok

NO_CA = Path("/nonexistent")


class Starting(BaseHTTPRequestHandler):
    """Answers 503 twice, then 200."""

    answers: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        self.send_response(self.answers.pop() if self.answers else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Starting.answers = [503, 503]
    with HTTPServer(("127.0.0.1", 0), Starting) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/ready"
        server.shutdown()
        thread.join()


def test_wait_ends_when_the_server_answers_200(url: str) -> None:
    assert not is_ok(url, NO_CA)
    assert wait_until_ok(url, NO_CA, lambda: True)
    assert Starting.answers == []


def test_wait_ends_when_the_process_is_not_wanted_any_more(url: str) -> None:
    assert not wait_until_ok(url, NO_CA, lambda: len(Starting.answers) == 2)
    assert len(Starting.answers) == 1


def test_server_that_refuses_connections_is_not_ready() -> None:
    assert not is_ok("http://127.0.0.1:1/ready", NO_CA)

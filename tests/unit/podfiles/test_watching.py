"""The master's metrics, and how it ends a mesh's proxy: over real sockets."""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import mesh
import metrics
import pytest

from tests.unit.podfiles.runs import make_run as run


def test_the_page_says_where_the_run_stands() -> None:
    lines = metrics.page(run(), "Training", 2, None).splitlines()
    assert 'horovod_stage{stage="Training"} 1' in lines
    assert 'horovod_stage{stage="Started"} 0' in lines
    assert f"horovod_ranks {run().ranks}" in lines
    assert "horovod_hosts_ready 2" in lines


def test_every_line_is_a_sample_or_a_comment() -> None:
    page = metrics.page(run(), "Failed", 0, 'horovod_loss{epoch="3"} 1.5e-3\n')
    for line in page.splitlines():
        assert line.startswith("# ") or metrics.SAMPLE.fullmatch(line), line


@pytest.mark.parametrize(
    ("line", "is_sample"),
    [
        ("horovod_images_per_second 512.3", True),
        ('loss{a="b",c="d"} -1.5e-07', True),
        ("loss NaN", True),
        ("loss", False),
        ("loss = 3", False),
        ("3 loss", False),
        ("Epoch 1/5", False),
        ('loss{a="b"', False),
    ],
)
def test_what_a_script_may_add(line: str, is_sample: bool) -> None:
    expected: tuple[list[str], int] = ([line], 0) if is_sample else ([], 1)
    assert metrics.parse_samples(f"# comment\n\n{line}\n") == expected


def test_a_file_not_written_yet_is_empty(tmp_path: Path) -> None:
    assert metrics.read_script_file(str(tmp_path / "later")) == ""
    assert metrics.read_script_file("") is None


def test_of_a_file_that_grows_without_end_one_mebibyte_is_read(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("x" * (2**20 + 1))
    assert len(metrics.read_script_file(str(tmp_path / "metrics")) or "") == 2**20


def stop(server: ThreadingHTTPServer) -> None:
    """Stop a server without waiting for its thread, which looks up every half second."""
    threading.Thread(target=server.shutdown, daemon=True).start()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_both_ip_families_are_answered(host: str) -> None:
    server = metrics.serve(lambda: "horovod_ranks 4\n", 0)
    with urllib.request.urlopen(f"http://{host}:{server.server_port}/metrics") as answer:
        assert answer.read() == b"horovod_ranks 4\n"
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    serving = [item for item in threading.enumerate() if "serve_forever" in item.name]
    assert all(thread.daemon for thread in serving), "they do not keep the process running"
    assert server.daemon_threads
    stop(server)


def test_a_port_in_use_does_not_end_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    server = metrics.serve(str, 0)
    environment = {"HVD_METRICS_PORT": str(server.server_port), "HVD_METRICS_FILE": ""}
    metrics.start(run(), str, int, environment)
    assert f"cannot serve metrics on port {server.server_port}" in capsys.readouterr().out
    stop(server)


class Proxy(ThreadingHTTPServer):
    """Stands for a mesh's proxy: remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answer(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.mark.parametrize(("mode", "asked"), [("Hold", ["/quit"]), ("Disabled", []), ("", [])])
def test_a_held_proxy_is_ended_and_a_missing_one_is_no_error(mode: str, asked: list[str]) -> None:
    proxy = Proxy()
    closed = 1
    mesh.end_proxy({closed: "/shutdown", proxy.server_port: "/quit"}, {"HVD_MESH": mode})
    assert proxy.asked == asked
    stop(proxy)


def test_the_proxies_of_istio_and_linkerd_are_known() -> None:
    """As istio.io ("pilot-agent" /quitquitquit) and linkerd.io ("Graceful pod shutdown") say."""
    assert mesh.PROXIES == {15020: "/quitquitquit", 4191: "/shutdown"}

"""The end of a service mesh's proxy: over real sockets."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hvd_pods.master import mesh


@pytest.mark.parametrize(("mode", "asked"), [("Hold", ["/quit"]), ("Disabled", []), ("", [])])
def test_a_held_proxy_is_ended_and_a_missing_one_is_no_error(mode: str, asked: list[str]) -> None:
    posted: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        # Nothing listens at port 1.
        mesh.end_proxy({1: "/shutdown", proxy.server_port: "/quit"}, {"HVD_MESH": mode})
        proxy.shutdown()
    assert posted == asked


def test_the_proxies_of_istio_and_linkerd_are_known() -> None:
    """As istio.io ("pilot-agent" /quitquitquit) and linkerd.io ("Graceful pod shutdown") say."""
    assert mesh.PROXIES == {15020: "/quitquitquit", 4191: "/shutdown"}

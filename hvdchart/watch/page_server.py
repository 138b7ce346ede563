"""Serve the page of a run to a browser on this machine.

The path of the page cannot be guessed, because other users and other pages of the browser can also
connect to the port. A page of another site could let its own name resolve to this machine's
address. So requests for other hosts than the loopback are refused.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hvdchart.watch.page import content_policy, embed_json, write_page
from hvdchart.watch.view_model import View

_ADDRESS = "127.0.0.1"
# Seconds after which a stream without events sends a comment, to detect a closed browser.
_PAGE_HEARTBEAT_INTERVAL_SECONDS = 10.0
# Seconds to wait for a request.
_REQUEST_TIMEOUT_SECONDS = 10.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, view: View) -> None:
        super().__init__((_ADDRESS, port), _Handler)
        self.token = secrets.token_urlsafe(24)
        self.view = view
        self.version = 0
        self.changed = threading.Condition()
        self.is_closed = False

    @property
    def hosts(self) -> tuple[str, str]:
        """Return the values of the header Host that a browser sends to this server."""
        return f"{_ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"


class PageServer:
    """The page at `address`, which shows the last view that was passed to `update`."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self.address = f"http://{_ADDRESS}:{server.server_port}/{server.token}/"

    def update(self, view: View) -> None:
        """Show another view."""
        with self._server.changed:
            self._server.view = view
            self._server.version += 1
            self._server.changed.notify_all()


@contextmanager
def serve_page(view: View, port: int = 0) -> Iterator[PageServer]:
    """Serve the page until the end of the block, on a port of the loopback (0: a free one).

    Raises OSError for a port that is in use.
    """
    server = _Server(port, view)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield PageServer(server)
    finally:
        with server.changed:
            server.is_closed = True
            server.changed.notify_all()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIMEOUT_SECONDS
    # Do not send the name and version of this program.
    server_version = "hvdchart"
    sys_version = ""

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, "this server has another name\n")
            return
        token, _, rest = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.NOT_FOUND, "open the address that hvdchart printed\n")
        elif rest == "":
            self._answer(HTTPStatus.OK, write_page(self.server.view, live=True), "text/html")
        elif rest == "events":
            self._send_events()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there is no such page\n")

    def log_message(self, format: str, *args: object) -> None:
        """Print no log: the terminal belongs to the user."""

    def _head(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", f"{content_policy()}; frame-ancestors 'none'")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        content = text.encode()
        self._head(status, kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_events(self) -> None:
        """Send each view as an event until the browser disconnects."""
        self._head(HTTPStatus.OK, "text/event-stream")
        self.end_headers()
        server = self.server
        sent = -1
        try:
            while not server.is_closed:
                with server.changed:
                    server.changed.wait_for(
                        lambda: server.is_closed or server.version != sent,  # noqa: B023
                        _PAGE_HEARTBEAT_INTERVAL_SECONDS,
                    )
                    view = server.view
                    is_new = server.version != sent
                    sent = server.version
                text = f"data: {embed_json(view.document())}\n\n" if is_new else ":\n\n"
                self.wfile.write(text.encode())
                self.wfile.flush()
        except OSError:
            # The browser has closed the page.
            return

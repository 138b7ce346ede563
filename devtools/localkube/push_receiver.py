"""An image registry that receives one push from a builder on this machine.

A builder asks a registry which layers it has and sends only the others, whereas an archive would
contain all of them. This registry implements the push part of the OCI distribution specification
(version 1.1) and nothing else.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

CHUNK_BYTES = 1 << 20
# How often the server looks for the end of the push; every load waits for it once.
SHUTDOWN_POLL_SECONDS = 0.02
BLOB = re.compile(r"/v2/[^?]+/blobs/(sha256:[0-9a-f]{64})")
NEW_UPLOAD = re.compile(r"/v2/[^?]+/blobs/uploads/?")
UPLOAD = re.compile(r"/v2/[^?]+/blobs/uploads/([0-9a-f-]{36})")
MANIFEST = re.compile(r"/v2/[^?]+/manifests/[^?]+")


class PushedImage:
    """What the builder has pushed so far.

    known_layers: digest and size in bytes of the layers that it need not send.
    directory: where blobs are written.
    manifest: the image's manifest as it was sent; its digest is that of exactly these bytes.
    """

    def __init__(self, known_layers: Mapping[str, int], directory: Path) -> None:
        self.known_layers = dict(known_layers)
        self.directory = directory
        self.blobs: dict[str, Path] = {}
        self.manifest = b""
        self.media_type = ""

    def size(self, digest: str) -> int | None:
        """The blob's size in bytes; None when the builder has to send it."""
        if digest in self.blobs:
            return self.blobs[digest].stat().st_size
        return self.known_layers.get(digest)


@contextmanager
def receive_push(
    known_layers: Mapping[str, int], directory: Path
) -> Iterator[tuple[PushedImage, int]]:
    """Listens on the loopback interface while the body runs; yields the image, which is complete
    when the builder has ended, and the port.
    """
    image = PushedImage(known_layers, directory)
    handler = type("Handler", (_Handler,), {"image": image})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[SHUTDOWN_POLL_SECONDS])
        thread.start()
        try:
            yield image, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    image: ClassVar[PushedImage]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Prints nothing: the builder itself reports its progress."""

    def do_GET(self) -> None:
        self._answer(HTTPStatus.OK if self._path == "/v2/" else HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        blob = BLOB.fullmatch(self._path)
        size = self.image.size(blob[1]) if blob else None
        if size is None:
            self._answer(HTTPStatus.NOT_FOUND)
        else:
            self._answer(HTTPStatus.OK, length=size)

    def do_POST(self) -> None:
        self._append_body(self.image.directory / "unused")
        if NEW_UPLOAD.fullmatch(self._path):
            location = f"/v2/image/blobs/uploads/{uuid.uuid4()}"
            self._answer(HTTPStatus.ACCEPTED, Location=location)
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def do_PATCH(self) -> None:
        upload = UPLOAD.fullmatch(self._path)
        if upload is None:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        size = self._append_body(self.image.directory / upload[1])
        self._answer(HTTPStatus.ACCEPTED, Location=self._path, Range=f"0-{size - 1}")

    def do_PUT(self) -> None:
        upload = UPLOAD.fullmatch(self._path)
        if upload:
            part = self.image.directory / upload[1]
            self._append_body(part)
            (digest,) = parse_qs(urlsplit(self.path).query)["digest"]
            self.image.blobs[digest] = part
            self._answer(HTTPStatus.CREATED, Location=f"/v2/image/blobs/{digest}")
        elif MANIFEST.fullmatch(self._path):
            self.image.manifest = b"".join(self._body())
            self.image.media_type = self.headers["Content-Type"]
            self._answer(HTTPStatus.CREATED, Location=self._path)
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    @property
    def _path(self) -> str:
        return urlsplit(self.path).path

    def _answer(self, status: HTTPStatus, length: int = 0, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _append_body(self, part: Path) -> int:
        """Appends the request's body to the file and returns the file's size."""
        with part.open("ab") as file:
            for chunk in self._body():
                file.write(chunk)
            return file.tell()

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield from _pieces(self.rfile, int(self.headers.get("Content-Length", 0)))
            return
        # RFC 9112, section 7.1: a size in hexadecimal, the data, an empty line; the last size is 0.
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield from _pieces(self.rfile, size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass


def _pieces(stream: BufferedIOBase, size: int) -> Iterator[bytes]:
    while size:
        data = stream.read(min(size, CHUNK_BYTES))
        if not data:
            raise ConnectionError("the builder closed the connection in the middle of a blob")
        size -= len(data)
        yield data

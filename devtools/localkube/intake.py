"""The receiving half of an image registry, for one push from a builder on this machine.

A builder asks a registry which layers it has and sends the others; an archive would hold them all.
It answers as the OCI distribution specification (version 1.1) says for `push`, and no more of it.
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

CHUNK = 1 << 20
BLOB = re.compile(r"/v2/[^?]+/blobs/(sha256:[0-9a-f]{64})")
NEW_UPLOAD = re.compile(r"/v2/[^?]+/blobs/uploads/?")
UPLOAD = re.compile(r"/v2/[^?]+/blobs/uploads/([0-9a-f-]{36})")
MANIFEST = re.compile(r"/v2/[^?]+/manifests/[^?]+")


class Intake:
    """What one push has brought.

    known: digest and size of the layers that need not be sent. directory: where blobs are put.
    manifest: the image's manifest, as sent; its digest is over exactly these bytes.
    """

    def __init__(self, known: Mapping[str, int], directory: Path) -> None:
        self.known = dict(known)
        self.directory = directory
        self.blobs: dict[str, Path] = {}
        self.manifest = b""
        self.media_type = ""

    def size(self, digest: str) -> int | None:
        if digest in self.blobs:
            return self.blobs[digest].stat().st_size
        return self.known.get(digest)


@contextmanager
def serve(known: Mapping[str, int], directory: Path) -> Iterator[tuple[Intake, int]]:
    """Listens on the loopback alone while the body runs; gives what has come in, and the port."""
    intake = Intake(known, directory)
    handler = type("Handler", (_Handler,), {"intake": intake})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield intake, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    intake: ClassVar[Intake]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """The builder reports what it does; a line for each request would say it twice."""

    def do_GET(self) -> None:
        self._answer(HTTPStatus.OK if self._path == "/v2/" else HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        blob = BLOB.fullmatch(self._path)
        size = self.intake.size(blob[1]) if blob else None
        if size is None:
            self._answer(HTTPStatus.NOT_FOUND)
        else:
            self._answer(HTTPStatus.OK, length=size)

    def do_POST(self) -> None:
        self._save(self.intake.directory / "unused")
        if NEW_UPLOAD.fullmatch(self._path):
            place = f"/v2/image/blobs/uploads/{uuid.uuid4()}"
            self._answer(HTTPStatus.ACCEPTED, Location=place)
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def do_PATCH(self) -> None:
        upload = UPLOAD.fullmatch(self._path)
        if upload is None:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        size = self._save(self.intake.directory / upload[1])
        self._answer(HTTPStatus.ACCEPTED, Location=self._path, Range=f"0-{size - 1}")

    def do_PUT(self) -> None:
        upload = UPLOAD.fullmatch(self._path)
        if upload:
            part = self.intake.directory / upload[1]
            self._save(part)
            (digest,) = parse_qs(urlsplit(self.path).query)["digest"]
            self.intake.blobs[digest] = part
            self._answer(HTTPStatus.CREATED, Location=f"/v2/image/blobs/{digest}")
        elif MANIFEST.fullmatch(self._path):
            self.intake.manifest = b"".join(self._body())
            self.intake.media_type = self.headers["Content-Type"]
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

    def _save(self, part: Path) -> int:
        """Adds the request's body to the file, and tells how long the file is now."""
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
        data = stream.read(min(size, CHUNK))
        if not data:
            raise ConnectionError("the builder broke off in the middle of a layer")
        size -= len(data)
        yield data

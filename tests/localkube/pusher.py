"""The client side of a push, as the OCI distribution specification describes it."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from devtools.localkube.oci import CONFIG, LAYER, MANIFEST, descriptor, to_json


@dataclass
class Pusher:
    """Pushes one image whose layers are these tar files.

    config: further keys of its config. compress: whether layers are sent gzipped. sent: the digests
    of the blobs that were sent.
    """

    layers: list[bytes]
    config: Mapping[str, object] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    compress: bool = True

    def __call__(self, destination: str) -> None:
        host, _, _ = destination.partition("/")
        connection = http.client.HTTPConnection(host)
        layers = [self._send_layer(connection, layer) for layer in self.layers]
        config = self.config_blob()
        self._send(connection, config)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, config),
            "layers": layers,
        }
        headers = {"Content-Type": MANIFEST}
        path = "/v2/image/manifests/latest"
        self._request(connection, "PUT", path, to_json(manifest), headers, HTTPStatus.CREATED)
        connection.close()

    def config_blob(self) -> bytes:
        digests = [descriptor(LAYER, layer)["digest"] for layer in self.layers]
        rootfs = {"type": "layers", "diff_ids": digests}
        return json.dumps({**self.config, "rootfs": rootfs}).encode()

    def _send_layer(
        self, connection: http.client.HTTPConnection, layer: bytes
    ) -> dict[str, object]:
        uncompressed = descriptor(LAYER, layer)
        path = f"/v2/image/blobs/{uncompressed['digest']}"
        connection.request("HEAD", path)
        answer = connection.getresponse()
        answer.read()
        if answer.status == HTTPStatus.OK:
            assert int(answer.headers["Content-Length"]) == len(layer)
            return uncompressed
        assert answer.status == HTTPStatus.NOT_FOUND
        if not self.compress:
            self._send(connection, layer)
            return uncompressed
        compressed = gzip.compress(layer)
        self._send(connection, compressed)
        return descriptor(f"{LAYER}+gzip", compressed)

    def _send(self, connection: http.client.HTTPConnection, blob: bytes) -> None:
        digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
        self.sent.append(digest)
        uploads = "/v2/image/blobs/uploads/"
        location = self._request(connection, "POST", uploads, b"", {}, HTTPStatus.ACCEPTED)
        # Builders send a body of unknown length in chunks.
        pieces = [blob[:3], blob[3:]]
        location = self._request(connection, "PATCH", location, pieces, {}, HTTPStatus.ACCEPTED)
        self._request(connection, "PUT", f"{location}?digest={digest}", b"", {}, HTTPStatus.CREATED)

    @staticmethod
    def _request(
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | list[bytes],
        headers: dict[str, str],
        expected: HTTPStatus,
    ) -> str:
        if isinstance(body, list):
            headers = {**headers, "Transfer-Encoding": "chunked"}
            connection.request(method, path, iter(body), headers, encode_chunked=True)
        else:
            connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == expected, f"{method} {path}: {answer.status}"
        return urlsplit(answer.headers["Location"]).path

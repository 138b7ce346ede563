"""A request to the API server of the tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.fakes.server import Handler

# Group, namespace and the path below these.
_URL = re.compile(r"/(?:api|apis/([^/]+))/v\w+(?:/namespaces/([^/]+))?/(.+)")
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Request:
    """`path` is relative to the namespace, as in kube.Api: `core/pods/NAME`."""

    method: str
    url: str
    namespace: str | None
    path: str
    query: dict[str, str]
    body: Any
    headers: Mapping[str, str]

    @property
    def resource(self) -> str:
        """The resource, such as pods, jobs or log."""
        return "log" if self.part == "log" else self._step(1) or self.path

    @property
    def name(self) -> str:
        return self._step(2)

    @property
    def part(self) -> str:
        """The subresource, such as scale; empty for the whole object."""
        return self._step(3)

    @property
    def verb(self) -> str:
        """The verb, as in roles: get, list, watch, create, patch or delete."""
        if self.method != "GET":
            return _VERBS[self.method]
        return "watch" if "watch" in self.query else "get" if self.name else "list"

    def _step(self, number: int) -> str:
        return dict(enumerate(self.path.split("/"))).get(number, "")


def read_request(handler: Handler) -> Request:
    """Read the request of a connection."""
    url = urlsplit(handler.path)
    length = int(handler.headers.get("Content-Length") or 0)
    body = json.loads(handler.rfile.read(length)) if length else None
    match = _URL.fullmatch(url.path)
    path = f"{match[1] or 'core'}/{match[3]}" if match else url.path.strip("/")
    return Request(
        handler.command,
        url.path,
        match and match[2],
        path,
        dict(parse_qsl(url.query)),
        body,
        dict(handler.headers),
    )

"""The request of a master to a worker's agent to start a program."""

from __future__ import annotations

import hashlib
import json
from collections import namedtuple
from collections.abc import Mapping

from hvd_pods.shared.contract import ATTEMPT, FENCE, NOTICES, RENDEZVOUS, RUN_ID

# The variables of a request that have no field of their own. Other variables are rejected.
ALLOWED = (NOTICES, RENDEZVOUS)
# Bytes of a request. An argument list and a rendezvous of thousands of workers are shorter.
MAX_REQUEST_BYTES = 1 << 16
MAX_ARGUMENTS = 4096
# Fence numbers are times in milliseconds; an attempt is a small number.
MAX_REQUEST_NUMBER = 1 << 62


class RequestError(Exception):
    """The request is not one that a master of this chart sends."""


class StartRequest(
    namedtuple("StartRequest", ["run", "fence", "attempt", "argv", "variables", "stay"])
):
    """A program to start: `argv`, for a run and an attempt.

    fence: the fence number (worker/fence.py); 0 stands for the worker's present one.
    variables: values of ALLOWED.
    stay: seconds that the program may go on when its master leaves it with the frame STAY.
    """

    def environment(self, inherited: Mapping[str, str], fence: int) -> dict[str, str]:
        """Return the program's environment: the container's, and the variables from the master."""
        variables = {
            RUN_ID: self.run,
            ATTEMPT: str(self.attempt),
            FENCE: str(fence),
            **self.variables,
        }
        return {
            **inherited,
            **{name: value for name, value in variables.items() if value not in ("", "0")},
        }

    def digest(self) -> str:
        """Return a short hash of the arguments, which identifies the program in logs."""
        return hashlib.sha256("\0".join(self.argv).encode(errors="replace")).hexdigest()[:12]

    def encode(self, nonce: str) -> bytes:
        """Return the content of the frame REQUEST. Raises RequestError for one that is too long."""
        content = json.dumps({"nonce": nonce, **self._asdict()}).encode()
        if len(content) > MAX_REQUEST_BYTES:
            raise RequestError(
                f"the request has {len(content)} bytes; at most {MAX_REQUEST_BYTES} are sent"
            )
        return content


def parse(content: bytes, nonce: str) -> StartRequest:
    """Parse the content of a frame REQUEST. Raises RequestError for anything unexpected."""
    if len(content) > MAX_REQUEST_BYTES:
        raise RequestError(f"the request has more than {MAX_REQUEST_BYTES} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise RequestError(f"the request is not JSON: {problem!s:.100}") from problem
    fields = {"nonce", *StartRequest._fields}
    if not isinstance(document, dict) or document.keys() != fields:
        raise RequestError(f"the request must have exactly the fields {', '.join(sorted(fields))}")
    if document.pop("nonce") != nonce:
        raise RequestError("the request is not for this connection")
    request = StartRequest(**document)
    for name in ("fence", "attempt"):
        value = getattr(request, name)
        if type(value) is not int or not 0 <= value <= MAX_REQUEST_NUMBER:
            raise RequestError(f"{name} is no number of a run")
    if type(request.stay) not in (int, float) or not 0 <= request.stay <= MAX_REQUEST_NUMBER:
        raise RequestError("stay is no number of seconds")
    if not isinstance(request.argv, list) or not 0 < len(request.argv) <= MAX_ARGUMENTS:
        raise RequestError("argv is no list of arguments")
    if not isinstance(request.variables, dict) or not request.variables.keys() <= set(ALLOWED):
        raise RequestError(f"variables may be {', '.join(ALLOWED)} only")
    for text in (request.run, *request.argv, *request.variables.values()):
        if not isinstance(text, str) or "\0" in text:
            raise RequestError("arguments and variables are texts without a NUL")
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as problem:
            raise RequestError("arguments and variables are texts of bytes") from problem
    return request

"""Asking a URL whether the program behind it is ready."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tenacity import Retrying, retry_if_result, wait_fixed

# A starting server sends no event; one refused connection costs about 0.1 ms of CPU.
PAUSE_SECONDS = 0.03
TIMEOUT_SECONDS = 5.0


def is_ok(url: str, ca: Path) -> bool:
    """True when `url` answers 200; an https server must have a certificate that `ca` issued. False
    on any other answer or none.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=TIMEOUT_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until_ok(url: str, ca: Path, still_wanted: Callable[[], bool]) -> bool:
    """Waits until `url` answers 200. Returns False when `still_wanted` is false before that."""
    attempts = Retrying(
        retry=retry_if_result(lambda ok: not ok),
        stop=lambda _: not still_wanted(),
        wait=wait_fixed(PAUSE_SECONDS),
        retry_error_callback=lambda _: False,
    )
    return attempts(is_ok, url, ca)

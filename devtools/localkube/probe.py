"""Asking a URL whether the program behind it is ready."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

# A server that is not up yet sends no event when it is; a refused connection costs about 0.1 ms of
# CPU.
PAUSE = 0.03
ANSWER_TIMEOUT = 2.0


def is_ok(url: str, ca: Path) -> bool:
    """True when `url` answers 200; https servers must show a certificate of `ca`. False on any
    other answer or none.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=ANSWER_TIMEOUT) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until_ok(url: str, ca: Path, still_wanted: Callable[[], bool]) -> bool:
    """Waits until `url` answers 200. False when `still_wanted` says no before that."""
    while still_wanted():
        if is_ok(url, ca):
            return True
        time.sleep(PAUSE)
    return False

"""Asking a URL whether the program behind it is ready."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_SECONDS = 5.0


def is_ok(url: str, ca: Path) -> bool:
    """True when `url` answers 200, with https by a certificate that `ca` issued."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=TIMEOUT_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False

"""Check with a request to a URL whether a program is ready."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

PROBE_TIMEOUT_SECONDS = 5.0


def is_ok(url: str, ca: Path) -> bool:
    """Return whether `url` responds with status 200. For https, `ca` must have issued the
    certificate.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    try:
        with urllib.request.build_opener(*handlers).open(
            url, timeout=PROBE_TIMEOUT_SECONDS
        ) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False

"""The page of a view: one HTML file that loads no other files.

It contains the view as JSON, and a script that draws it. The policy allows only this style and this
script; texts of the view are inserted as text only.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from hvdchart import __version__
from hvdchart.watch.view_model import View

_PAGE_FOLDER = Path(__file__).parent / "page"


@dataclass(frozen=True)
class Section:
    """A text below the view that the user can open."""

    title: str
    text: str


def write_page(
    view: View, *, live: bool = False, widget: bool = False, sections: Sequence[Section] = ()
) -> str:
    """Return the page for a view; `live`: it follows the events of its server.

    As a `widget`, it is a part of another page.
    """
    data = {
        "view": view.document(),
        "live": live,
        "widget": widget,
        "version": __version__,
        "sections": [{"title": section.title, "text": section.text} for section in sections],
    }
    filled = {
        "policy": escape(content_policy()),
        "title": escape(f"{view.name}: {view.state}"),
        "style": _read("page.css"),
        "script": _read("page.js"),
        "data": embed_json(data),
    }
    text = _read("page.html")
    # Replace all in one pass: an inserted text may itself contain such a name.
    head, *parts = text.split("{")
    for part in parts:
        name, _, rest = part.partition("}")
        head += filled[name] + rest
    return head


def content_policy() -> str:
    """Return the Content-Security-Policy of the page."""
    rules = {
        "default-src": "'none'",
        "script-src": _digest(_read("page.js")),
        "style-src": _digest(_read("page.css")),
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def embed_json(data: object) -> str:
    """Return data as JSON on one line, escaped so that it is safe within HTML."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _read(name: str) -> str:
    return (_PAGE_FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"

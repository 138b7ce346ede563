"""A hook of the documentation's site, which mkdocs.yaml names.

Some pages outside docs/ become pages of the site. The hook adjusts links to them. Links to other
files of the repository lead to the repository (REPOSITORY_URL) or, without one, to a copy in the
site. The search leaves out the pages for contributors, the list of pages and the changelog, because
it would show them before more helpful pages. The hook runs in the environment of
requirements/docs.txt.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from mkdocs.structure.files import File

from devtools.common.repository import ROOT

DOCS = "docs/"
# The search leaves out this part of the navigation, and pages that repeat the text of others.
NOT_SEARCHED = "For contributors"
REPEATING = ("README.md", "CHANGELOG.md")
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "GOVERNANCE.md",
    "SECURITY.md",
    "charts/horovod/README.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("images/**/README.md"))),
)
# The folder with copies of other files.
COPIES = "source/"
# Inline links and reference definitions: `[text](place)` and `[text]: place`.
_LINK = re.compile(r"(\]\(|^\[[^\]\n]+\]:\s+)([^)\s]+)(\)?)", re.MULTILINE)
_FENCE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)\s*$", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"[a-z]+:|#|/")


def place_in_site(path: str) -> str:
    """Return the place in the site of a page or a file of docs/, by its path in the repository."""
    return path.removeprefix(DOCS)


def place_in_repository(place: str) -> str:
    """Return the path in the repository: the opposite of place_in_site."""
    return place if place in OUTSIDE else DOCS + place


def on_config(config: Any) -> Any:
    """Add all pages of a folder where the navigation names a folder."""
    config.nav = _expand_folders(config.nav)
    return config


def _expand_folders(entry: Any) -> Any:
    if isinstance(entry, list):
        return [_expand_folders(item) for item in entry]
    if isinstance(entry, dict):
        return {title: _expand_folders(item) for title, item in entry.items()}
    if entry.endswith("/"):
        pages = sorted((ROOT / DOCS / entry).glob("*.md"))
        return [f"{entry}{page.name}" for page in pages]
    return entry


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/."""
    for path in OUTSIDE:
        files.append(File.generated(config, place_in_site(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Adjust the links of a page to its place in the site."""
    above = [section.title for section in page.ancestors]
    excluded = NOT_SEARCHED in above or page.file.src_uri in REPEATING
    page.meta["search"] = {"exclude": excluded}
    return _adapt_links(markdown, place_in_repository(page.file.src_uri), page, config, files)


def _adapt_links(markdown: str, origin: str, page: Any, config: Any, files: Any) -> str:
    def adapt(match: re.Match[str]) -> str:
        if _URL.match(match[2]):
            return match[0]
        path, mark, anchor = match[2].partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        if not (ROOT / target).exists():
            # MkDocs reports the broken link.
            return match[0]
        link = _link_to(target, page.file.src_uri, config, files)
        return f"{match[1]}{link}{mark}{anchor}{match[3]}"

    parts = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(adapt, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(adapt, markdown[end:])])


def _link_to(target: str, place: str, config: Any, files: Any) -> str:
    """Return the link from the page at `place` to the file or folder `target` of the repository."""
    if target in OUTSIDE or (target.startswith(DOCS) and (ROOT / target).is_file()):
        return posixpath.relpath(place_in_site(target), posixpath.dirname(place) or ".")
    if f"{target}/README.md" in OUTSIDE:
        return _link_to(f"{target}/README.md", place, config, files)
    if config.repo_url:
        return f"{config.repo_url.rstrip('/')}/blob/main/{target}"
    if (ROOT / target).is_dir():
        # A folder has no page: link to the page that describes the folders.
        return _link_to("CONTRIBUTING.md", place, config, files)
    copy = f"{COPIES}{target}.txt"
    if files.get_file_from_path(copy) is None:
        files.append(File.generated(config, copy, content=(ROOT / target).read_text("utf-8")))
    return posixpath.relpath(copy, posixpath.dirname(place) or ".")

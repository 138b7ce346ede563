"""The last few builds of each image, kept under names of their own: going back to an earlier state
of the tree, or to another checkout, then builds nothing.
"""

from __future__ import annotations

from pathlib import Path

from devtools.common.cache import cache_dir

# Builds of one image share most layers; each keeps what is different, up to the whole environment.
KEPT = 4


def kept_name(reference: str, key: str) -> str:
    """What a build is called beside its reference, for as long as it is kept."""
    return f"{reference.partition(':')[0]}:kept-{key}"


def newest_last(kept: str) -> list[str]:
    """Notes that a build was made or asked for again; returns the names that are now to be
    forgotten. To be called by one builder at a time.
    """
    file = cache_dir() / "images" / "kept.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    names = [name for name in _lines(file) if name != kept] + [kept]
    repository = kept.partition(":")[0]
    same = [name for name in names if name.partition(":")[0] == repository]
    old = same[:-KEPT]
    file.write_text("".join(f"{name}\n" for name in names if name not in old))
    return old


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []

"""Keeps the last few builds of each image under further references: going back to an earlier state
of the tree, or to another checkout, then builds nothing.
"""

from __future__ import annotations

from devtools.common.cache import cache_dir

# Builds of one image share most layers; a kept build takes up to the size of its environment.
LIMIT = 4


def kept_name(reference: str, key: str) -> str:
    """The further reference of a build."""
    return f"{reference.partition(':')[0]}:kept-{key}"


def touch_and_evict(name: str) -> list[str]:
    """Records the use of a build; returns the references that exceed LIMIT, the oldest of that
    image, which the caller removes. The caller holds the lock of builds.
    """
    file = cache_dir() / "images" / "kept.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    used = file.read_text().splitlines() if file.exists() else []
    names = [other for other in used if other != name] + [name]
    repository = name.partition(":")[0]
    evicted = [other for other in names if other.partition(":")[0] == repository][:-LIMIT]
    file.write_text("".join(f"{other}\n" for other in names if other not in evicted))
    return evicted

"""The image that an image is built from: a public one, or where no registry answers one of the
packages of its release.
"""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

from devtools.common.cache import cache_dir, content_key
from devtools.common.errors import ImageError
from devtools.common.ui import note, step, tail
from devtools.images.catalogue import Image
from devtools.images.engine import Engine
from devtools.images.engines import ensure_program

_SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))
_OFF = re.compile(r"^Enabled:\s*no\s*\n?", re.IGNORECASE | re.MULTILINE)
# What nothing in a pod reads is not even unpacked, now or by a later apt-get.
_DEBOOTSTRAP = (
    "mmdebstrap",
    "--variant=minbase",
    "--format=tar",
    # Ubuntu's minimum is without it.
    "--include=apt",
    *(
        f"--dpkgopt=path-exclude=/usr/share/{name}/*"
        for name in ("doc", "info", "locale", "man", "lintian")
    ),
    # Licences travel with what they cover.
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)


def base_of(image: Image, engine: Engine) -> tuple[str, str]:
    """(reference, key) of the base to build from; it is there afterwards. Raises ImageError when
    none can be had.

    A base that was made or pulled before is taken as it is, so that a second build asks nobody.
    """
    if image.base is None or image.suite is None:
        raise ImageError(f"{image.name} has no base of its own", "build what it is from")
    distribution = image.base.partition(":")[0]
    sources = package_sources(image.suite, distribution)
    local = f"hvd-base:{image.suite}"
    local_key = content_key([], *_DEBOOTSTRAP, image.suite, *sources)
    if engine.key(local) == local_key:
        return local, local_key
    # Buildah and Podman would ask a person, or a list, which registry an unqualified name means.
    public = f"docker.io/library/{image.base}"
    if engine.key(public) is not None:
        return public, image.base
    with step(f"look for {image.base} in an image registry"):
        pulled = engine.pull(public)
    if pulled:
        return public, image.base
    if not sources:
        raise ImageError(
            f"neither an image registry nor a package source of {distribution}'s {image.suite} "
            "is configured here",
            f"add a source of {image.suite} below /etc/apt (docs/images.md), or make registries "
            "reachable",
        )
    note(f"no image registry can be reached: the base comes from {distribution}'s packages")
    _make(image.suite, sources, local, local_key, engine)
    return local, local_key


def package_sources(suite: str, distribution: str) -> list[str]:
    """The machine's own package sources that hold `suite`, its updates and its security fixes.

    Each is the text of an entry below /etc/apt in either form; entries of other releases are left
    out. Those that say `Enabled: no`, which the machine itself takes nothing from, count where no
    other holds `suite`. Where none does and the machine runs `distribution` (debian, ubuntu)
    itself, those of its own release, with the one name put for the other: a mirror has all releases
    that live.
    """
    found = _sources_of(suite)
    if found:
        return [entry for entry in found if not _OFF.search(entry)] or [
            _OFF.sub("", entry) for entry in found
        ]
    machine = platform.freedesktop_os_release()
    if machine.get("ID") != distribution:
        return []
    own = machine.get("VERSION_CODENAME", "")
    return [
        _renamed(entry, own, suite) for entry in _sources_of(own) if own and not _OFF.search(entry)
    ]


def _renamed(entry: str, old: str, new: str) -> str:
    """An entry for another release of the same distribution."""
    return re.sub(rf"\b{re.escape(old)}\b", new, entry)


def _sources_of(suite: str) -> list[str]:
    files = [
        _SOURCES[0],
        *sorted(_SOURCES[1].glob("*.list")),
        *sorted(_SOURCES[1].glob("*.sources")),
    ]
    found = []
    for file in files:
        if file.is_file():
            paragraphs = split_sources(file.read_text(), one_line=file.suffix == ".list")
            found += [text for text in paragraphs if has_suite(text, suite)]
    return found


def split_sources(text: str, *, one_line: bool) -> list[str]:
    """The entries of a sources file, comments left out: lines, or paragraphs of the deb822 form."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if one_line:
        return [line.strip() for line in lines if line.strip()]
    return [entry.strip() for entry in "\n".join(lines).split("\n\n") if entry.strip()]


def has_suite(entry: str, suite: str) -> bool:
    """Whether an entry is of the main archive for `suite`, or for its -updates or -security."""
    words = entry.split()
    suites = {suite, f"{suite}-updates", f"{suite}-security", f"{suite}/updates"}
    return "main" in words and bool(suites & set(words)) and not entry.startswith("deb-src")


def _make(suite: str, sources: list[str], reference: str, key: str, engine: Engine) -> None:
    ensure_program("mmdebstrap", "mmdebstrap")
    folder = cache_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    tarball = folder / f"base-{suite}-{key}.tar"
    log = cache_dir() / "logs" / f"base-{suite}.log"
    try:
        with step(f"make a base image of {suite}'s packages"), log.open("w") as output:
            done = subprocess.run(
                [*_DEBOOTSTRAP, suite, str(tarball), "-"], input="\n\n".join(sources), text=True,
                stdout=output, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise ImageError(
                    f"mmdebstrap failed (status {done.returncode}); {tail(log)}",
                    "mend the machine's package sources",
                )
            engine.import_root(tarball, reference, key)
    finally:
        # The engine keeps the image: the archive would be a second copy.
        tarball.unlink(missing_ok=True)

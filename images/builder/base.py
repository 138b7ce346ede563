"""The base of an image: a public image or, where no registry can be reached, one made of the
packages of its release.
"""

from __future__ import annotations

import platform
import re
import tempfile
from pathlib import Path

from debian.deb822 import Deb822

from devtools.common.apt import ensure_program
from devtools.common.cache import cache_dir, content_key
from devtools.common.commands import run_logged
from devtools.common.errors import DevtoolsError
from devtools.common.ui import note, step
from images.builder.build_engines import Build, Engine
from images.builder.catalogue import Image

# The configuration of this machine's apt.
_APT = Path("/etc/apt")
_ONE_LINE = re.compile(r"deb(?:\s+\[(.*)\])?\s+(\S+)\s+(\S+)\s+(.+)")
# Fields of the deb822 form whose names differ from those of the options.
_OPTIONS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
# Leave out files that no pod reads, in this step and in later runs of apt-get.
_DEBOOTSTRAP = (
    "mmdebstrap",
    "--variant=minbase",
    "--format=tar",
    # Ubuntu's minimal variant lacks it.
    "--include=apt",
    *(
        f"--dpkgopt=path-exclude=/usr/share/{name}/*"
        for name in ("doc", "info", "locale", "man", "lintian")
    ),
    # Licences stay in the image.
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)
# All engines unpack an archive that is added.
_DOCKERFILE = 'FROM scratch\nADD root.tar /\nCMD ["/bin/bash"]\n'


def base_of(image: Image, engine: Engine) -> tuple[str, str]:
    """Make or pull the base of an image; return its reference and key.

    A local image is used without asking a registry. Raises DevtoolsError if there is neither a
    registry nor a package source.
    """
    if image.base is None or image.suite is None:
        raise DevtoolsError(f"{image.name} has no base of its own", "build its parent first")
    distribution = image.base.partition(":")[0]
    sources = package_sources(image.suite, distribution)
    local = f"hvd-base:{image.suite}"
    local_key = content_key([], *_DEBOOTSTRAP, image.suite, *sources)
    if engine.key(local) == local_key:
        return local, local_key
    # Without the registry, Buildah and Podman would ask which one is meant.
    public = f"docker.io/library/{image.base}"
    if engine.key(public) is not None:
        return public, image.base
    with step(f"look for {image.base} in an image registry"):
        pulled = engine.pull(public)
    if pulled:
        return public, image.base
    if not sources:
        raise DevtoolsError(
            f"neither an image registry nor a package source of {distribution}'s {image.suite} "
            "is configured here",
            f"add a source of {image.suite} below /etc/apt (images/README.md), "
            "or make registries reachable",
        )
    note(f"no image registry can be reached: the base comes from {distribution}'s packages")
    _make(image.suite, sources, local, local_key, engine)
    return local, local_key


def package_sources(suite: str, distribution: str, apt: Path = _APT) -> list[str]:
    """Return this machine's package sources for `suite`, its updates or its security fixes.

    Each is the text of an entry below the folder `apt`, in the deb822 form. Entries with
    `Enabled: no` count if no other has `suite`. If no entry has it and the machine runs
    `distribution` (debian, ubuntu) itself, its own release's sources are used, with the suite
    replaced: a mirror has all supported releases.
    """
    entries = _read_sources(apt)
    matching = [entry for entry in entries if _has_suite(entry, suite)]
    machine = platform.freedesktop_os_release()
    if not matching and machine.get("ID") == distribution:
        codename = machine.get("VERSION_CODENAME", "")
        matching = [entry for entry in entries if _has_suite(entry, codename)]
        for entry in matching:
            entry["Suites"] = re.sub(rf"\b{re.escape(codename)}\b", suite, entry["Suites"])
    chosen = [entry for entry in matching if _is_enabled(entry)] or matching
    return [_text(entry) for entry in chosen]


def _read_sources(apt: Path) -> list[Deb822]:
    main = apt / "sources.list"
    folder = apt / "sources.list.d"
    entries: list[Deb822] = []
    for file in (main, *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))):
        if file.is_file() and file.suffix == ".list":
            entries += [parsed for line in file.read_text().splitlines() for parsed in _parse(line)]
        elif file.is_file():
            entries += Deb822.iter_paragraphs(file.read_text(), use_apt_pkg=False)
    return entries


def _parse(line: str) -> list[Deb822]:
    """Parse a line of the one-line form, see sources.list(5); return none for other lines."""
    match = _ONE_LINE.fullmatch(line.partition("#")[0].strip())
    if match is None:
        return []
    options, *rest = match.groups()
    fields = dict(zip(("Types", "URIs", "Suites", "Components"), ("deb", *rest), strict=True))
    for option in (options or "").split():
        name, _, value = option.partition("=")
        fields[_OPTIONS.get(name, name.title())] = value.replace(",", " ")
    return [Deb822(fields)]


def _has_suite(entry: Deb822, suite: str) -> bool:
    """Return whether an entry is for `suite`, or for its updates or security fixes.

    Only the component `main` counts.
    """
    suites = {suite, f"{suite}-updates", f"{suite}-security", f"{suite}/updates"}
    return (
        "deb" in entry.get("Types", "").split()
        and "main" in entry.get("Components", "").split()
        and bool(suites & set(entry.get("Suites", "").split()))
    )


def _is_enabled(entry: Deb822) -> bool:
    return entry.get("Enabled", "yes").lower() not in ("no", "false")


def _text(entry: Deb822) -> str:
    fields = {name: value for name, value in entry.items() if name != "Enabled"}
    return str(Deb822(fields)).strip()


def _make(suite: str, sources: list[str], reference: str, key: str, engine: Engine) -> None:
    ensure_program("mmdebstrap")
    archives = cache_dir() / "images"
    log = cache_dir() / "logs" / f"base-{suite}.log"
    archives.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="hvd-base-", dir=archives) as name,
        step(f"make a base image of {suite}'s packages"),
    ):
        folder = Path(name)
        (folder / "Dockerfile").write_text(_DOCKERFILE)
        listed = folder / "debian.sources"
        listed.write_text("\n\n".join(sources) + "\n")
        run_logged(
            [*_DEBOOTSTRAP, suite, str(folder / "root.tar"), str(listed)],
            log,
            remedy="correct the machine's package sources",
        )
        engine.build(Build(folder, folder / "Dockerfile", [reference], {}, {}, key))

"""Horovod's source with all patches, which builds by PEP 517 for the frameworks that are there."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
from pathlib import Path

from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT
from images.common import build_horovod

# It has a series as an image has one, of all patches.
PATCHES = ROOT / "images" / "patches"
# What the version has after the plus sign, also that of wheels built from it; what
# HOROVOD_LOCAL_VERSION says follows it, as a version has one plus sign.
LABEL = "patched"
_OWN_LABEL = (
    """return __version__ + "+" + os.environ['HOROVOD_LOCAL_VERSION'] """
    """if 'HOROVOD_LOCAL_VERSION' in os.environ else __version__"""
)
_BOTH_LABELS = (
    f"""return __version__ + '.'.join(['+{LABEL}'] + """
    """[os.environ[name] for name in ['HOROVOD_LOCAL_VERSION'] if os.environ.get(name)])"""
)


def write_sdist(out: Path) -> Path:
    """Write the archive into the folder `out`, which exists; return its path.

    The same patches give the same bytes. Raises DevtoolsError if there is no such folder, and exits
    with a message if the source does not have the text to replace.
    """
    if not out.is_dir():
        raise DevtoolsError(f"{out}: no such folder", "create it first, or name another one")
    with tempfile.TemporaryDirectory() as work:
        source = build_horovod.patched_source(Path(work), build_horovod.patches(PATCHES))
        metadata = source / "PKG-INFO"
        _replace(source / "setup.py", _OWN_LABEL, _BOTH_LABELS)
        version = source.name.removeprefix("horovod-")
        _replace(metadata, f"\nVersion: {version}\n", f"\nVersion: {version}+{LABEL}\n")
        name = f"{source.name}+{LABEL}"
        target = out / f"{name}.tar.gz"
        with (
            target.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=build_horovod.TIME) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as archive,
        ):
            archive.add(source, name, filter=_anonymous)
    return target


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    if text.count(old) != 1:
        raise SystemExit(f"{file} does not have {old!r} once")
    file.write_text(text.replace(old, new))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the file without its owner and time. tarfile adds the files of a folder in order."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = build_horovod.TIME
    return member

"""The packaged chart and the wheel. The same tree gives the same bytes at any time."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML

import hvdchart
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.repository import CHART, ROOT
from devtools.release.changelog import notes
from devtools.toolchain.tools import tool
from images.builder.catalogue import load_catalogue

SUMS = "SHA256SUMS"
RELEASE_NOTES = "NOTES.md"
ICON = "docs/pictures/icon.svg"
# The inputs of the wheel.
_WHEEL = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "hvdchart", "charts", "examples")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")
# zip has no times before 1980.
_FIRST_ZIP_SECONDS = 315_532_800


def build(out: Path, repository: str = "", registry: str = "") -> list[Path]:
    """Write the chart, the wheel, the notes and the checksums into the empty folder `out`.

    repository: the URL of the repository, for the links in the chart's metadata and in the notes.
    registry: the registry of the images, for the list of images on Artifact Hub. Without it, the
    list is left out. Return the paths of the files.
    Raises DevtoolsError when `out` is not empty, when Helm or setuptools fails, and when the
    changelog does not describe this version.
    """
    if out.exists() and any(out.iterdir()):
        raise DevtoolsError(f"{out} is not empty", "remove it, or name another folder")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hvd-release-") as folder:
        staging = Path(folder)
        files = [
            package_chart(staging / "chart", out, repository, registry),
            build_wheel(staging / "wheel", out),
        ]
    text = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)
    (out / SUMS).write_text(text)
    (out / RELEASE_NOTES).write_text(notes(hvdchart.__version__, repository), "utf-8")
    return [*files, out / SUMS, out / RELEASE_NOTES]


def package_chart(staging: Path, out: Path, repository: str, registry: str) -> Path:
    """Package the chart with Helm 4, which takes the times in the archive from the files."""
    chart = staging / "horovod"
    shutil.copytree(CHART, chart, ignore=_LEFT_OUT)
    file = chart / "Chart.yaml"
    yaml = YAML()
    document = yaml.load(file)
    document |= published(repository)
    if registry:
        document["annotations"]["artifacthub.io/images"] = _images(registry)
    with file.open("w") as written:
        yaml.dump(document, written)
    _set_times(chart)
    command = [str(tool("helm4")), "package", str(chart), "--destination", str(out)]
    read_output(command, remedy=f"run: {' '.join(command)}")
    (package,) = out.glob("*.tgz")
    return package


def published(repository: str) -> dict[str, object]:
    """Return the fields of Chart.yaml that only a published chart has.

    A fork has another home and other maintainers. The only known name is `owner` of the repository.
    """
    if not repository:
        return {}
    owner = repository.rstrip("/").split("/")[-2]
    page = repository.rstrip("/").rsplit("/", 1)[0]
    return {
        "home": repository,
        "sources": [repository],
        "icon": f"{repository}/raw/v{hvdchart.__version__}/{ICON}",
        "maintainers": [{"name": owner, "url": page}],
    }


def _images(registry: str) -> str:
    """Return the images of this release in the format of Artifact Hub's annotation."""
    images: Mapping[str, object] = {
        image.name: f"{registry}/{image.reference}" for image in load_catalogue().values()
    }
    return "".join(f"- name: {name}\n  image: {image}\n" for name, image in images.items())


def build_wheel(staging: Path, out: Path) -> Path:
    """Build the wheel from a copy of its files, so that it contains no other files."""
    staging.mkdir()
    for name in _WHEEL:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, staging / name, ignore=_LEFT_OUT)
        else:
            shutil.copy(source, staging / name)
    _set_times(staging)
    # The build system's own hook: pip would look for setuptools in an index.
    call = f"import os, setuptools.build_meta as b; os.chdir({str(staging)!r})"
    command = [sys.executable, "-c", f"{call}; b.build_wheel({str(out.resolve())!r})"]
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(_FIRST_ZIP_SECONDS),
        "PYTHONHASHSEED": "0",
    }
    read_output(command, remedy=f"run: {' '.join(command)}", environment=environment)
    (wheel,) = out.glob("*.whl")
    return wheel


def _set_times(folder: Path) -> None:
    """Give every file the same time and the modes that any checkout has."""
    for path in [folder, *folder.rglob("*")]:
        executable = path.is_dir() or os.access(path, os.X_OK)
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (_FIRST_ZIP_SECONDS, _FIRST_ZIP_SECONDS))

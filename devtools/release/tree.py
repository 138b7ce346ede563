"""Whether this tree may be released under a tag: each place that names the version agrees."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

import hvdchart
from devtools.release.changelog import UNRELEASED, sections

ROOT = Path(__file__).resolve().parents[2]


def versions(root: Path = ROOT) -> dict[str, str]:
    """The version that each file names."""
    yaml = YAML(typ="safe")
    return {
        "hvdchart/__init__.py": hvdchart.__version__,
        "charts/horovod/Chart.yaml": yaml.load(root / "charts/horovod/Chart.yaml")["version"],
        "CITATION.cff": yaml.load(root / "CITATION.cff")["version"],
        "CHANGELOG.md": sections((root / "CHANGELOG.md").read_text("utf-8"))[0].version,
    }


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """What keeps the tree from being released as `tag`, a line each."""
    wrong = [
        f"{file} has version {version}, and the tag is {tag}: expected v{version}"
        for file, version in versions(root).items()
        if tag != f"v{version}"
    ]
    newest = sections((root / "CHANGELOG.md").read_text("utf-8"))[0]
    if newest.day == UNRELEASED:
        wrong.append(f"CHANGELOG.md calls {newest.version} {UNRELEASED}: write the day instead")
    return wrong

"""Users of each earlier version find in this one what they name, or the changelog says otherwise.

tests/released has the chart of each version, from which other tests upgrade, and its names.
"""

from __future__ import annotations

import json

import pytest

import hvdchart
from devtools.release import artifacts, changelog
from devtools.release.names import names

SECTIONS = changelog.sections(changelog.FILE.read_text("utf-8"))
EARLIER = [section.version for section in SECTIONS[1:]]
# What went without having been deprecated; the changelog names it.
GONE = {
    f"{command} {option}"
    for command in ("render", "discover", "migrate")
    for option in ("-o", "--output")
}
GONE |= {
    f"{command} {option}" for command in ("deploy", "plan", "render") for option in ("-f", "--file")
}
# Keys of a spec that are refused with what to use instead, and that its schema does not have.
GONE |= {f"launch.elastic{key}" for key in ("", ".minRanks", ".maxRanks")}
GONE |= {"launch.hostsTimeoutSeconds"}
# Commands that went; the changelog names what to use instead.
GONE_COMMANDS = ("schema", "tune")


def test_every_file_names_the_same_version() -> None:
    assert set(changelog.versions().values()) == {hvdchart.__version__}


@pytest.mark.parametrize("version", EARLIER)
def test_earlier_version_is_kept(version: str) -> None:
    for name in (f"horovod-{version}.tgz", f"names-{version}.json"):
        has_it = (artifacts.RELEASED / name).is_file()
        assert has_it, f"{name}: run `python -m devtools.release keep` in the tree of {version}"


@pytest.mark.parametrize("kind", ["values", "spec", "commands", "library"])
@pytest.mark.parametrize("version", EARLIER)
def test_what_users_name_is_still_there(version: str, kind: str) -> None:
    """Or refused with what to use instead: the schema has retired values, too."""
    kept = json.loads((artifacts.RELEASED / f"names-{version}.json").read_text("utf-8"))
    assert len(kept[kind]) > 10
    missing = set(kept[kind]) - set(names()[kind]) - GONE
    gone = {name for name in missing if name.split()[0] not in GONE_COMMANDS}
    assert gone == set(), "deprecate it first: docs/compatibility.md"

"""What `deploy --diff` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.played_runs import (
    list_upgrades,
)

pytestmark = pytest.mark.timeout(120)
SECRET = "---\n# Source: s\napiVersion: v1\nkind: Secret\ndata: {key: private}\n"
BEFORE = f"{SECRET}---\n# Source: j\nkind: Job\nspec: {{a: 1}}\n"


@pytest.fixture
def changed(running: FakeCluster, spec: Path, helm: StubProgram) -> FakeCluster:
    """A run of which a preview changes the Job."""
    after = BEFORE.replace("1}", "2}")
    helm.answer("get manifest", BEFORE)
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": after}))
    return running


def test_diff_prints_what_changes(
    hvdchart: Command, changed: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    """The API server has checked it."""
    shown = hvdchart("deploy", spec, "--diff").output
    assert "--dry-run=server" in list_upgrades(helm)[-1].arguments
    assert [line for line in shown.splitlines() if line[:1] in "+-"] == [
        "--- installed",
        "+++ deploy",
        "-spec: {a: 1}",
        "+spec: {a: 2}",
    ]


def test_diff_shows_an_archive_by_its_digest(
    hvdchart: Command, changed: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    before, after = (f"---\nbinaryData:\n  a.tgz: {'QUJD' * 100}{end}\n" for end in ("", "QUJD"))
    helm.answer("get manifest", before)
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": after}))
    shown = hvdchart("deploy", spec, "--diff").output
    assert "QUJD" not in shown
    assert re.search(r"^\+  a\.tgz: .*\b404\b.* sha256 ", shown, re.MULTILINE)


def test_diff_of_a_new_release_is_all_of_it_but_secrets(
    hvdchart: Command, changed: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("get manifest", errors="Error: release: not found", code=1)
    shown = hvdchart("deploy", spec, "--diff").output
    assert "+kind: Job" in shown
    assert "private" not in shown

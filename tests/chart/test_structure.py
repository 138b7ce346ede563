"""How the templates are written: what every file includes, and the length of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.render import CHART, one, pod_spec, render

TEMPLATES = CHART / "templates"
LONGEST_LINE = 120
# Generated files, and the text that Helm shows after an installation.
NOT_WRITTEN_AS_CODE = ("_defaults.tpl", "_retired.tpl", "NOTES.txt")
RENDERED = [
    path
    for path in sorted(TEMPLATES.rglob("*"))
    if path.is_file() and not path.name.startswith("_") and path.name != "validate.yaml"
]


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.name)
def test_template_prepares_the_values_first(path: Path) -> None:
    """Helm decides the order of the files, so that any of them may be the first."""
    assert path.read_text().startswith('{{- include "horovod.prepare" . -}}\n')


@pytest.mark.parametrize("path", [*TEMPLATES.rglob("*.*")], ids=lambda path: path.name)
def test_template_lines_fit_a_screen(path: Path) -> None:
    if path.name not in NOT_WRITTEN_AS_CODE:
        long = [line for line in path.read_text().splitlines() if len(line) > LONGEST_LINE]
        assert long == []


def test_defaults_replace_missing_keys_only() -> None:
    """0, false and an empty text are values, not missing keys."""
    values = {"serviceAccount": {"create": False}, "master": {"backoffLimit": 0}}
    manifests = render(values)
    job = one(manifests, "Job")
    assert job["spec"]["backoffLimit"] == 0
    assert "serviceAccountName" not in pod_spec(job)

"""What `hvdchart migrate` writes, as real Helm takes it: the schema and the chart's own checks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.toolchain.tools import tool
from hvdchart.errors import SpecError
from hvdchart.migrate.convert import Migration, migrate
from hvdchart.migrate.report import values_text
from hvdchart.spec.yaml_tree import parse
from hvdchart.values.chart import chart_dir
from tests.unit.hvdchart.test_migrate import CHANGES, FILES, SCHEMA, changed


def assert_helm_takes(found: Migration, helm: str) -> None:
    done = subprocess.run(
        [str(tool(helm)), "template", found.release or "run", str(chart_dir()), "--values", "-"],
        input=values_text(found, "old"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_helm_takes_the_values(path: Path, helm: str) -> None:
    assert_helm_takes(migrate(parse(path.read_bytes(), path.name), SCHEMA), helm)


@given(st.sampled_from(FILES), CHANGES)
@settings(max_examples=40, deadline=None)
def test_helm_takes_what_is_not_refused(path: Path, changes: list[tuple[int, Any]]) -> None:
    text = json.dumps(changed(path, changes))
    try:
        found = migrate(parse(text.encode(), path.name), SCHEMA)
    except SpecError:
        return
    assert_helm_takes(found, "helm3")

"""Helm accepts what `hvdchart migrate` writes: the schema and the chart's own checks."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.toolchain.tools import tool
from hvdchart.chart_files import chart_dir
from hvdchart.errors import SpecError
from hvdchart.migrate.convert import Migration
from hvdchart.migrate.report import values_text
from tests.unit.hvdchart.migrate.old_files import (
    CHANGES,
    NAMES,
    change_file,
    migrate_file,
    migrate_text,
)


def assert_helm_accepts(migration: Migration, helm: str) -> None:
    release = migration.release or "run"
    # The chart has no default image; `migrate` then says that it must be set.
    named = "repository" in migration.values.get("image", {})
    image = [] if named else ["--set", "image.repository=registry.example/team/app"]
    done = subprocess.run(
        [str(tool(helm)), "template", release, str(chart_dir()), *image, "--values", "-"],
        input=values_text(migration, "old"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize("name", NAMES)
def test_helm_accepts_the_values_of_a_file(name: str, helm: str) -> None:
    assert_helm_accepts(migrate_file(name), helm)


@pytest.mark.fuzz
@given(st.sampled_from(NAMES), CHANGES)
@settings(max_examples=40, deadline=None)
def test_helm_accepts_the_values_of_any_change_of_a_file(
    name: str, changes: list[tuple[int, Any]]
) -> None:
    try:
        migration = migrate_text(json.dumps(change_file(name, changes)))
    except SpecError:
        return
    assert_helm_accepts(migration, "helm3")

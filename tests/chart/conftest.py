"""A namespace of the real API server without pods and images, and the chart's next version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.common.repository import CHART
from devtools.docs_gen import programs
from tests.chart.namespaces import empty_namespace
from tests.support.namespace import Namespace


@pytest.fixture
def place(kubeconfig: Path) -> Iterator[Namespace]:
    """An empty namespace."""
    with empty_namespace(kubeconfig) as made:
        yield made


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next version of the chart: one more program, other defaults, one more value."""
    folder = tmp_path_factory.mktemp("chart") / "newer"
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("__pycache__"))
    archive = folder / programs.PROGRAMS_ARCHIVE.relative_to(CHART)
    files = {**programs.contents(), "shared/added.py": b""}
    archive.write_bytes(programs.pack(files))
    about = folder / "Chart.yaml"
    text = about.read_text()
    assert "\nversion: " in text
    assert "\nappVersion: " in text
    text = text.replace("\nversion: ", "\nversion: 1").replace("\nappVersion: ", "\nappVersion: 1")
    about.write_text(text)
    added = {"newList": [], "newMap": {"a": {}}, "newText": "", "newSwitch": False}
    values = folder / "values.yaml"
    lines = '  newList: []\n  newMap: {a: {}}\n  newText: ""\n  newSwitch: false\n'
    values.write_text(values.read_text().replace("\nworker:", f"\nworker:\n{lines}#", 1))
    for name, keys in {"_defaults.tpl": "worker", "_hashes.tpl": "workerGroups"}.items():
        template = folder / "templates" / "generated" / name
        mark = f'"{keys}": {{\n'
        text = template.read_text()
        assert mark in text
        template.write_text(text.replace(mark, f"{mark}{json.dumps(added)[1:-1]},\n"))
    schema = folder / "values.schema.json"
    schema.write_text(json.dumps({"type": "object"}))
    return folder

"""Helm keeps a release in a Secret of at most 1 MiB: code of the size that the chart takes fits."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import string
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.common.repository import CHART, DOCS
from devtools.docs_gen import programs
from devtools.docs_gen.chart_docs import load_source
from hvdchart.chart_files import read_data
from tests.chart.render import Values, helm_template, render, with_image

# Kubernetes' limit of a Secret.
SECRET = 1 << 20
# For values, notes, and what this test leaves out of a release.
SPARE = 30_000
CODE = int(read_data("resources.json")["codeBytes"])
ARGUMENTS: Values = {"master": {"args": ["python", "train.py"]}}
SCALE = DOCS / "scale.md"


def chart_files() -> dict[str, Path]:
    """Return the files of the chart that Helm stores, by name: it stores none of charts/."""
    lines = (CHART / ".helmignore").read_text().splitlines()
    patterns = [line.strip("/") for line in lines if line.startswith("/")]
    stored = {}
    for path in sorted(CHART.rglob("*")):
        name = path.relative_to(CHART).as_posix()
        # The patterns of .helmignore that begin with a slash, which `*` does not match.
        is_ignored = name.startswith(("ci/", "charts/")) or any(
            fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")
            for pattern in patterns
        )
        if path.is_file() and not is_ignored and "__pycache__" not in name:
            stored[name] = path
    return stored


def test_release_has_the_data_that_templates_read_and_no_other() -> None:
    templates = "".join(file.read_text() for file in (CHART / "templates").rglob("*.tpl"))
    folder = CHART / "files" / "hvd_pods" / "shared"
    read = {file.name for file in folder.glob("*.json") if f'{file.name}"' in templates}
    stored = {
        path.name for name, path in chart_files().items() if name.startswith("files/hvd_pods")
    }
    assert read == {name for name in stored if name.endswith(".json")}


def stored_size(values: Values, beside: str = "") -> int:
    """Return how many bytes of a Secret a release takes, with more text in its manifests."""
    done = helm_template({**ARGUMENTS, **values})
    assert done.returncode == 0, done.stderr
    files = chart_files()
    encoded = {
        name: {"name": name, "data": base64.b64encode(path.read_bytes()).decode()}
        for name, path in files.items()
    }
    release: dict[str, Any] = {
        "name": "hvd",
        "chart": {
            "metadata": yaml.safe_load(files["Chart.yaml"].read_text()),
            "templates": [
                content for name, content in encoded.items() if name.startswith("templates/")
            ],
            "values": yaml.safe_load(files["values.yaml"].read_text()),
            "schema": encoded["values.schema.json"]["data"],
            "files": [
                content
                for name, content in encoded.items()
                if name.startswith("files/") or name in ("README.md", ".helmignore")
            ],
        },
        "config": with_image({**ARGUMENTS, **values}),
        "manifest": done.stdout + beside,
        "version": 1,
        "namespace": "team",
    }
    return len(base64.b64encode(gzip.compress(json.dumps(release).encode(), 9)))


def incompressible(kind: str, characters: int) -> Values:
    """Return code that no compression makes smaller than its alphabet allows."""
    noise = random.Random(1)  # noqa: S311
    if kind == "archive":
        data = b"\x1f\x8b\x08" + noise.randbytes(characters * 3 // 4 - 3)
        return {"code": {"archive": base64.b64encode(data).decode()}}
    letters = string.ascii_letters + string.digits + string.punctuation + " \n"
    return {"code": {"files": {"train.py": "".join(noise.choices(letters, k=characters))}}}


def test_release_with_nothing_in_it_leaves_six_tenths_of_the_secret() -> None:
    assert stored_size({}) < SECRET * 4 // 10


@pytest.mark.parametrize("kind", ["archive", "files"])
def test_most_code_that_the_chart_takes_fits(kind: str) -> None:
    assert stored_size(incompressible(kind, CODE)) < SECRET - SPARE


def test_most_code_beside_programs_that_an_upgrade_keeps_fits() -> None:
    """templates/programs/kept-programs.yaml takes half of the kept characters off the limit."""
    noise = random.Random(2)  # noqa: S311
    size = programs.PROGRAMS_ARCHIVE.stat().st_size
    kept = base64.b64encode(noise.randbytes(size)).decode()
    code = incompressible("archive", CODE - len(kept) // 2)
    assert stored_size(code, kept) < SECRET - SPARE


def test_pages_and_values_say_the_limit() -> None:
    kilobytes = f"{CODE * 3 // 4 // 1000} kB"
    assert f"at most {CODE:,} bytes" in (DOCS / "code.md").read_text()
    assert f"at most {kilobytes} before base64" in json.dumps(load_source())
    assert f"files by name, at most {CODE // 1000} kB" in json.dumps(load_source())


def page_sizes() -> dict[str, float]:
    """The bytes in the tables of docs/scale.md, by the beginning of their rows."""
    units = {"kB": 1e3, "MB": 1e6}
    rows = re.findall(r"^\| ([^|:,]+)[^|]* \| (\d+) ([kM]B) \|$", SCALE.read_text(), re.MULTILINE)
    return {what.strip(): int(number) * units[unit] for what, number, unit in rows}


def most_code() -> int:
    return stored_size(incompressible("archive", CODE))


def objects_size(values: Values) -> int:
    """Return how many bytes the objects of a release have, as JSON."""
    return sum(len(json.dumps(item)) for item in render({**ARGUMENTS, **values}))


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ("a revision without code", lambda: stored_size({})),
        ("a revision with all code that [fits](code.md#limits)", most_code),
        ("the objects of a release without code", lambda: objects_size({})),
    ],
    ids=["revision", "code", "objects"],
)
def test_page_has_the_size_of_what_a_release_stores(row: str, size: Callable[[], int]) -> None:
    assert 0.85 * page_sizes()[row] < size() <= page_sizes()[row]

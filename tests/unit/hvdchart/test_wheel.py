"""The wheel is complete: it has the chart, and renders without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hvdchart
from devtools.common.repository import CHART, EXAMPLE_VALUES, EXAMPLES, ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, unpacked as an installation has them."""
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("src", "whl", "site"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("hvdchart", "charts", "examples"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    # What a checkout has in which a pod's program has run.
    cache = source / "charts" / "horovod" / "files" / "__pycache__" / "kube.pyc"
    cache.parent.mkdir()
    cache.touch()
    # The build system's own hook, which `python -m build` would call in a third process.
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(wheels)!r})"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(target)
    return target


def test_wheel_has_each_module_of_the_library_and_of_the_pods(installed: Path) -> None:
    carried = {path.relative_to(installed) for path in installed.rglob("*.py")}
    for folder, name in ((ROOT, "hvdchart"), (ROOT / "charts/horovod/files", "hvd_pods")):
        modules = {path.relative_to(folder) for path in (folder / name).rglob("*.py")}
        assert modules
        assert modules - carried == set()


def test_wheel_has_the_chart(installed: Path) -> None:
    ours = {path.relative_to(CHART) for path in CHART.rglob("*") if path.is_file()}
    ours = {path for path in ours if "__pycache__" not in path.parts}
    carried = installed / "hvdchart" / "chart"
    assert {path.relative_to(carried) for path in carried.rglob("*") if path.is_file()} == ours


def test_wheel_has_the_examples_and_the_page_of_a_run(installed: Path) -> None:
    examples = {path.name for path in (installed / "hvdchart" / "examples").iterdir()}
    assert examples == {path.name for path in EXAMPLES.glob("*.py")}
    parts = {path.name for path in (installed / "hvdchart" / "watch" / "page").iterdir()}
    assert parts == {path.name for path in (ROOT / "hvdchart" / "watch" / "page").iterdir()}


def test_wheel_says_its_version_and_that_it_has_types(installed: Path) -> None:
    for file in ("__init__.pyi", "py.typed"):
        assert (installed / "hvdchart" / file).is_file()
    (metadata,) = installed.glob("hvdchart-*.dist-info/METADATA")
    assert f"\nVersion: {hvdchart.__version__}\n" in metadata.read_text()


def test_wheel_renders_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    spec = EXAMPLE_VALUES / "local.spec.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "hvdchart", "render", str(spec)],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (EXAMPLE_VALUES / "local.yaml").read_text()

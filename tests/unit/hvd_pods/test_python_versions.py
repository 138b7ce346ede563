"""Two programs run in the Python of scripts or launchers, which may be older than the others."""

from __future__ import annotations

import ast

import pytest

from tests.unit.hvd_pods.copies import PROGRAMS


@pytest.mark.parametrize("file", ["rank/child_site.py", "master/guard.py"])
def test_what_runs_in_the_python_of_scripts_or_launchers_suits_any(file: str) -> None:
    tree = ast.parse((PROGRAMS / file).read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in [node.module for node in imports], "annotations came with 3.7"

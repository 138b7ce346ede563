"""One program runs in the Python of scripts, which may be older than the others."""

from __future__ import annotations

import ast

from devtools.pods.program_copies import POD_PROGRAMS


def test_what_runs_in_the_python_of_scripts_suits_any() -> None:
    tree = ast.parse((POD_PROGRAMS / "rank/child_site.py").read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in [node.module for node in imports], "annotations came with 3.7"

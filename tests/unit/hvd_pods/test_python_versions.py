"""The syntax and the imports of the pod files suit the Python of any image.

Only what a parser sees: whether Python 3.8 has each function and argument is not checked here.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.unit.hvd_pods.copies import FILES


@pytest.mark.parametrize(
    "file", sorted(FILES.rglob("*.py")), ids=lambda file: f"{file.parent.name}/{file.name}"
)
def test_pod_files_have_only_syntax_and_imports_that_python_3_8_has(file: Path) -> None:
    # Frameworks that a script has loaded before are there, too.
    own = {"hvd_pods", "horovod", "cloudpickle", "numpy"}
    for node in ast.walk(ast.parse(file.read_text(), feature_version=(3, 8))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names, *own}


@pytest.mark.parametrize("file", ["rank/child_site.py", "master/guard.py"])
def test_what_runs_in_the_python_of_scripts_or_launchers_suits_any(file: str) -> None:
    """Both may have another Python than the chart's programs."""
    tree = ast.parse((FILES / "hvd_pods" / file).read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in [node.module for node in imports], "annotations came with 3.7"

"""What `render` imports, which decides how long it takes, and that nothing starts a shell.

Which module may import which is a contract of import-linter in pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hvdchart

PACKAGE = Path(hvdchart.__file__).parent
SPEC = Path(__file__).parents[3] / "values" / "xeon-4.spec.yaml"
# Others, which other subcommands need or which happen to be installed, would take longer
# than all of these together: pydantic 0.11 s, jsonschema in pure Python 0.08 s.
RENDER_NEEDS = {"annotated_doc", "jsonschema_rs", "ruamel", "shellingham", "typer"}


def imported_by(program: str) -> set[str]:
    """The top-level modules that a program imports in an interpreter of its own."""
    report = "\nprint(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    program = f"import sys; before = set(sys.modules)\n{program}{report}"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_render_imports_no_slow_package() -> None:
    imported = imported_by(
        "import contextlib; from hvdchart.cli.app import main\n"
        f"sys.argv = ['hvdchart', 'render', {str(SPEC)!r}, '--output', '/dev/null']\n"
        "with contextlib.suppress(SystemExit): main()"
    )
    third_party = imported - sys.stdlib_module_names - {"hvdchart"}
    assert {"jsonschema_rs", "ruamel", "typer"} <= third_party <= RENDER_NEEDS
    assert "asyncio" not in imported


def test_library_imports_no_third_party_package() -> None:
    """What it needs it imports at the first call."""
    imported = imported_by("import hvdchart")
    assert imported - sys.stdlib_module_names == {"hvdchart"}
    assert not {"subprocess", "socket"} & imported


def test_no_module_starts_a_shell() -> None:
    """pyhelm3 would run Helm through one."""
    sources = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    assert PACKAGE / "run" / "helm.py" in sources
    for path, text in sources.items():
        assert "shell=True" not in text, path
        assert "create_subprocess_shell" not in text, path

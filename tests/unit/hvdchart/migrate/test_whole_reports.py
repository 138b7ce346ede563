"""Values and report of files with many keys, compared word for word.

To write them again after a change: `python -m tests.unit.hvdchart.migrate.test_whole_reports`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.migrate.convert import migrate_command_line, migrate_file
from hvdchart.migrate.report import report_text, values_text
from hvdchart.values.schema import values_schema

FOLDER = Path(__file__).parent / "reports"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".sh"))


def whole_report(path: Path) -> str:
    """The values file and the report of one of the files."""
    migrate = migrate_command_line if path.suffix == ".sh" else migrate_file
    migration = migrate(path.read_bytes(), path.name, values_schema())
    return f"{values_text(migration, path.name)}---\n{report_text(migration)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_values_and_report_of_a_file_with_many_keys(path: Path) -> None:
    expected = path.with_suffix(".txt").read_text("utf-8")
    assert whole_report(path) == expected, f"the report of {path.name} is another one"


if __name__ == "__main__":
    for file in FILES:
        file.with_suffix(".txt").write_text(whole_report(file), "utf-8")

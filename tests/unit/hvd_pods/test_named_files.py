"""Files that comments and docstrings of the programs name exist."""

from __future__ import annotations

import re

from devtools.common.repository import CHART, ROOT
from devtools.pods.program_copies import POD_PROGRAMS

FOLDERS = [file.parent.name for file in POD_PROGRAMS.glob("*/__init__.py")]
BESIDE = ("docs", "files", "hvdchart", "images", "templates", "tests")
NAMED = re.compile(
    rf"(?<![\w./-])(?:{'|'.join((*FOLDERS, *BESIDE))})/[\w/-]+\.(?:json|md|py|tpl|yaml)\b"
)


def test_files_that_the_programs_name_exist() -> None:
    named = {
        (file.relative_to(POD_PROGRAMS).as_posix(), name)
        for file in POD_PROGRAMS.rglob("*.py")
        for name in NAMED.findall(file.read_text("utf-8"))
    }
    assert len(named) > 30
    folders = (POD_PROGRAMS, CHART, ROOT)
    missing = [
        pair for pair in named if not any((folder / pair[1]).is_file() for folder in folders)
    ]
    assert sorted(missing) == []

"""Reading updates and advisories. These need no image and no engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common.errors import DevtoolsError
from devtools.images.audit import Update, ask_pypi, parse_updates


@pytest.mark.parametrize(
    ("output", "status", "message"),
    [
        ("Found 1 known vulnerability in 1 package", 1, None),
        ("ERROR: could not connect to pypi.org", 1, "cannot be reached: ERROR: could not connect"),
    ],
)
def test_findings_of_pip_audit_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, status: int, message: str | None
) -> None:
    """pip-audit ends with 1 for both."""
    package = tmp_path / "pip_audit"
    package.mkdir()
    (package / "__init__.py").touch()
    asked = "assert '--strict' in sys.argv"
    program = f"import sys\n{asked}\nprint({output!r}, file=sys.stderr)\nsys.exit({status})\n"
    (package / "__main__.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if message is None:
        assert ask_pypi({"pillow": "9.0.0"})[0] == status
    else:
        with pytest.raises(DevtoolsError, match=message):
            ask_pypi({"pillow": "9.0.0"})


def test_security_updates_are_marked() -> None:
    log = (
        "#7 1.2 Inst libssl3 [3.0.11-1] (3.0.17-1 Debian-Security:12/oldstable-security [amd64])\n"
        "Inst tzdata [2024a-0] (2025b-0 Debian:12.12/oldstable, Debian:12-updates [all]) []\n"
        "Inst new-one (1.0 Debian:12.12/oldstable [all])\nConf tzdata (2025b-0)\n"
    )
    assert parse_updates(log) == [
        Update("libssl3", "3.0.11-1", "3.0.17-1", "Debian-Security:12/oldstable-security "),
        Update("tzdata", "2024a-0", "2025b-0", "Debian:12.12/oldstable, Debian:12-updates "),
    ]
    assert [update.security for update in parse_updates(log)] == [True, False]

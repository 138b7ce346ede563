"""The static checks: what they need of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.checks import lint


def test_missing_program_is_named_with_the_package_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without apt-get.
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lint.main() == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert "missing Debian packages: shellcheck;" in errors
    assert "remedy: install shellcheck" in errors

"""`make lint` shows what all checks say, and fails when one does."""

from __future__ import annotations

import sys

import pytest

from devtools.checks import lint


def test_all_checks_run_and_those_that_fail_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say = "import sys; print(sys.argv[1]); sys.exit(sys.argv[1] == 'wrong')"
    commands = {f"says {word}": [sys.executable, "-Sc", say, word] for word in ("wrong", "good")}
    monkeypatch.setattr(lint, "checks", lambda: commands)
    assert lint.main() == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("wrong\ngood\n", "lint: says wrong failed\n")
    del commands["says wrong"]
    assert lint.main() == 0

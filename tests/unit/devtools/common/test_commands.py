"""Running commands: their output, their logs and their failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common.commands import read_output, run_logged
from devtools.common.errors import CommandError, ImageError

FAILING = ["sh", "-c", "echo printed; echo broken >&2; exit 3"]


def test_output_is_what_the_command_prints() -> None:
    command = ["sh", "-c", 'cat; echo "$NAME"']
    assert read_output(command, remedy="", input="in ", environment={"NAME": "x"}) == "in x\n"


def test_failed_command_raises_status_standard_error_and_remedy() -> None:
    with pytest.raises(
        CommandError, match=r"^`sh -c .*` failed \(status 3\): broken\n  remedy: r$"
    ):
        read_output(FAILING, remedy="r")
    with pytest.raises(ImageError):
        read_output(FAILING, remedy="r", error=ImageError)


def test_long_command_line_is_shortened() -> None:
    with pytest.raises(CommandError, match=r"^`false 1 2 3 4 5 6 7 \.\.\.` failed"):
        read_output(["false", *map(str, range(1, 20))], remedy="")


def test_log_has_all_output_and_the_error_shows_its_end(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "log"
    run_logged(["sh", "-c", "pwd; echo $NAME"], log, remedy="", folder=tmp_path, environment={})
    assert log.read_text() == f"{tmp_path}\n\n"
    with pytest.raises(
        ImageError, match=r"status 3\); the end of .*\n.*\n.*\n    printed\n    broken"
    ):
        run_logged(FAILING, log, remedy="", error=ImageError)

"""What kubectl reads in a container, by a `kubectl` that records its calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.kubectl import Kubectl
from tests.fakes.program import StubProgram


def test_a_command_that_fails_in_a_container_is_named(programs: Path) -> None:
    kubectl = StubProgram(programs, "kubectl")
    kubectl.answer("team", "printed")
    assert Kubectl("team").read("hvd-0", "worker", ["cat", "/tmp/x"]) == b"printed"
    assert kubectl.calls[-1].arguments[-6:] == ["hvd-0", "-c", "worker", "--", "cat", "/tmp/x"]
    kubectl.answer("team", errors="cat: /tmp/x:\n no such file\n", code=1)
    with pytest.raises(ClusterError) as raised:
        Kubectl("team").read("hvd-0", "worker", ["cat", "/tmp/x"])
    assert str(raised.value) == "cannot run cat in pod hvd-0: cat: /tmp/x: no such file"


@pytest.mark.parametrize(
    ("is_input", "is_output", "option"),
    [(True, True, "-it"), (True, False, "-i"), (False, True, "-i"), (False, False, "-i")],
)
def test_a_terminal_is_asked_for_where_there_is_one(
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_input: bool,
    is_output: bool,
    option: str,
) -> None:
    kubectl = StubProgram(programs, "kubectl")
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_input)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_output)
    assert Kubectl("team").run_in("hvd-0", "worker", ["ls"]) == 0
    assert kubectl.calls[-1].arguments[2:5] == ["exec", option, "hvd-0"]

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

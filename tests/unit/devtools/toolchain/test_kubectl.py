"""kubectl's watch, with a program that prints what kubectl would."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common.errors import CommandError
from devtools.toolchain import kubectl
from devtools.toolchain.kubectl import Kubectl


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    program = tmp_path / "kubectl"
    program.write_text('#!/bin/sh\nprintf "$PRINTED"\necho "$@" > "$CALL"\nexec sleep "$STAYS"\n')
    program.chmod(0o755)
    monkeypatch.setattr(kubectl, "tool", lambda _: program)
    return Kubectl("space", {"CALL": str(tmp_path / "call"), "STAYS": "60"})


def printing(client: Kubectl, text: str, stays: int = 60) -> Kubectl:
    return Kubectl(client.namespace, {**client.environment, "PRINTED": text, "STAYS": str(stays)})


@pytest.mark.parametrize(
    ("printed", "end"),
    [("\\nSuspended\\nSuccessCriteriaMet Complete\\n", "Complete"), ("Failed\\n", "Failed")],
)
def test_job_end_is_its_final_condition(client: Kubectl, printed: str, end: str) -> None:
    assert printing(client, printed).wait_for_job_end("job", 60) == end


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_job_has_started_when_its_pod_is_not_pending(client: Kubectl, phase: str) -> None:
    pods = printing(client, f"pod\\npod Pending\\npod-2 {phase}\\n")
    assert pods.wait_for_job_start("job", 60) == "pod-2"


def test_watch_that_ends_without_the_state_raises_an_error(client: Kubectl, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="did not show the awaited state within 60 s"):
        printing(client, "Suspended\\n", stays=0).wait_for_job_end("job", 60)
    call = (tmp_path / "call").read_text().split()
    assert call[:5] == ["--namespace", "space", "get", "job", "job"]
    assert "--watch" in call

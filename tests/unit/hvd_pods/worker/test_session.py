"""What a worker does with an SSH session: it becomes its command, or says why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common import fast_start, fence
from hvd_pods.worker import session


def test_session_of_a_master_that_was_replaced_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(epoch: str | None) -> str:
        raise fence.FenceError(f"epoch {epoch} is over")

    monkeypatch.setattr(fence, "admit", refuse)
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("the command has run"))
    monkeypatch.setenv(fence.EPOCH, "7")
    assert session.main() == fence.FenceError.exit_code
    assert capsys.readouterr().err == f"[hvd] error: {os.uname().nodename}: epoch 7 is over\n"


@pytest.mark.parametrize(
    ("requested", "command"),
    [("nproc --all", ["/bin/sh", "-c", "nproc --all"]), (None, ["/bin/sh", "-i"])],
)
def test_session_has_the_containers_environment_and_the_epoch_that_was_admitted(
    requested: str | None,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = tmp_path / "environment"
    saved.write_bytes(b"OPTIONS=--a=b --c=d\0PATH=/own\0\0EMPTY=\0")
    monkeypatch.setattr(fast_start, "ENVIRONMENT", str(saved))
    monkeypatch.setattr(fence, "admit", lambda epoch: "8")
    monkeypatch.setenv(fence.EPOCH, "7")
    monkeypatch.setenv("SSH_CLIENT", "10.0.0.1")
    monkeypatch.delenv("SSH_ORIGINAL_COMMAND", raising=False)
    if requested:
        monkeypatch.setenv("SSH_ORIGINAL_COMMAND", requested)
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *given: became.append(given))
    session.main()
    ((program, words, environment),) = became
    assert (program, words) == ("/bin/sh", command)
    shown = {"OPTIONS": "--a=b --c=d", "PATH": "/own", "EMPTY": "", "SSH_CLIENT": "10.0.0.1"}
    assert shown.items() <= environment.items()
    assert environment[fence.EPOCH] == "8"
    assert "SSH_ORIGINAL_COMMAND" not in environment

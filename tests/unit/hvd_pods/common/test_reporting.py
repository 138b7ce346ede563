"""What is printed of texts that others wrote."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hvd_pods.common import reporting
from hvd_pods.common.errors import RunError


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_any_text_is_printed_in_any_encoding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, encoding: str
) -> None:
    """An image may set a locale, and the name of a file that is no UTF-8 has no encoding at all."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, "strict") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    text = "caf\xe9 \udce9 \x1b[31m"
    reporting.log(text)
    reporting.report_failure(RunError(text))
    for stream in streams:
        stream.seek(0)
        shown = stream.read()
        assert shown.endswith(r" \udce9 \x1b[31m" + "\n")
        assert ("\xe9" if encoding == "utf-8" else r"\xe9") in shown
    assert (tmp_path / "log").read_text("utf-8") == "caf\xe9 " + r"\udce9 \x1b[31m" + "\n"


def test_a_long_termination_message_keeps_its_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kubelet shows 4096 bytes, and would cut off the beginning."""
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    reporting.report_failure(RunError("why: " + "x" * 5000))
    assert (tmp_path / "log").read_text() == "why: " + "x" * 4091

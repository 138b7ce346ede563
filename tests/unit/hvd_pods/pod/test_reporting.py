"""What is printed of texts that others wrote."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hvd_pods.pod import reporting
from hvd_pods.shared.errors import RunError


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "\xe9"), ("ascii", r"\xe9")])
def test_any_text_is_printed_in_any_encoding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, encoding: str, shown: str
) -> None:
    """An image may set a locale, and the name of a file that is no UTF-8 has no encoding at all."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, "strict") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    text = "th\xe9 \udce9 \x1b[31m"
    reporting.log(text)
    reporting.report_failure(RunError(text))
    written = [stream.buffer.getvalue().decode(encoding) for stream in streams]
    ends = [text.partition("th")[2] for text in written]
    assert ends == [shown + r" \udce9 \x1b[31m" + "\n"] * 2
    assert (tmp_path / "log").read_text("utf-8") == "th\xe9 " + r"\udce9 \x1b[31m" + "\n"


def test_a_long_termination_message_keeps_its_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kubelet shows 4096 bytes, and would cut off the beginning."""
    monkeypatch.setattr(reporting, "TERMINATION_LOG", tmp_path / "log")
    reporting.report_failure(RunError("why: " + "x" * 5000))
    assert (tmp_path / "log").read_text() == "why: " + "x" * 4091

"""`make try-tensorflow`: its output and exit status, without a build."""

from __future__ import annotations

import json
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.images.catalogue import load_catalogue
from devtools.trials import try_tensorflow

PASSES = 'RESULT {"one_check": {}}'
FAILS = "RESULT " + json.dumps({"one_check": {}, "other": {"1": "Traceback\nValueError: no ref\n"}})
DEFAULT = load_catalogue()["cpu"].versions["tensorflow"]


@pytest.mark.parametrize(
    ("version", "python", "overrides"),
    [
        ("2.99.0", "", {"suite": "bookworm", "openmpi": "4.1.4"}),
        ("2.99.0", "3.13", {"python": "3.13", "suite": "trixie", "openmpi": "5.0.7"}),
        # A row of versions.yaml, which says what goes together.
        (DEFAULT, "3.13", {"python": "3.13"}),
    ],
)
def test_python_selects_its_suite_and_openmpi(
    version: str, python: str, overrides: dict[str, str]
) -> None:
    expected = {"tensorflow": version, **overrides}
    assert try_tensorflow.parameters(version, "", python) == (expected, version != DEFAULT)


def test_python_of_no_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert try_tensorflow.main("2.99.0", python="3.2") == 1
    assert "python=3.2 is not among the combinations" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("printed", "status", "words"),
    [
        ([PASSES, PASSES], 0, ["passes  one_check", "1 of 1 checks pass on two ranks over Gloo"]),
        ([FAILS, PASSES], 1, ["fails   other\n        ValueError: no ref", "1 of 2 checks pass"]),
        ([PASSES, FAILS], 1, ["1 of 2 checks pass on two ranks over Gloo"]),
        (["noise"], 1, ["did not finish over MPI", "a traceback"]),
    ],
    ids=["all pass", "one fails", "one fails over Gloo", "no result"],
)
def test_exit_status_is_0_only_if_all_checks_pass(
    printed: list[str],
    status: int,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run_checks(*_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, printed.pop(0), "a traceback")

    image = SimpleNamespace(reference="horovod-cpu:test")
    monkeypatch.setattr(try_tensorflow, "build", lambda *_, **__: image)
    monkeypatch.setattr(try_tensorflow, "sandbox", lambda *_: nullcontext())
    monkeypatch.setattr(try_tensorflow, "install_checks", lambda _: None)
    monkeypatch.setattr(try_tensorflow, "run_checks", run_checks)
    assert try_tensorflow.main("2.99.0") == status
    shown = capsys.readouterr().out
    assert [word for word in words if word not in shown] == []
    assert ("`versions`" in shown) == (status == 0)

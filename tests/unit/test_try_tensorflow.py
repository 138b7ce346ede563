"""`make try-tensorflow`: its output and exit status, without a build."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.common.errors import ImageError
from devtools.images.catalogue import load_catalogue
from devtools.trials import try_tensorflow
from devtools.trials.checks import COMMON
from devtools.trials.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO

REFERENCE = "horovod-cpu:0.28.1-tf2.99.0"


def result(**wrong: dict[str, str]) -> str:
    return f"noise\nRESULT {json.dumps({'one_check': {}, **wrong})}\n"


@pytest.fixture
def checks_say(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what the ranks print over MPI and over Gloo, in an image that is asked for and not
    built.
    """

    def say(over_mpi: str, over_gloo: str = result()) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def build(name: str, **options: Any) -> SimpleNamespace:
            asked.append({"name": name, **options})
            return SimpleNamespace(reference=REFERENCE)

        @contextmanager
        def sandbox(image: Any, folder: Path) -> Iterator[None]:
            yield None

        printed = {TWO_RANKS: over_mpi, (*TWO_RANKS_OVER_GLOO, *COMMON): over_gloo}

        def run_checks(inside: None, launcher: tuple[str, ...], *checks: str) -> Any:
            printed_text = printed[*launcher, *checks]
            return subprocess.CompletedProcess(launcher, 0, printed_text, "a traceback")

        monkeypatch.setattr(try_tensorflow, "build", build)
        monkeypatch.setattr(try_tensorflow, "sandbox", sandbox)
        monkeypatch.setattr(try_tensorflow, "install_checks", lambda inside: None)
        monkeypatch.setattr(try_tensorflow, "run_checks", run_checks)
        return asked

    return say


def test_exit_status_is_0_when_all_checks_pass(
    checks_say: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = checks_say(result())
    assert try_tensorflow.main("2.99.0", "3.99.0") == 0
    wanted = {"tensorflow": "2.99.0", "keras": "3.99.0", "suite": "bookworm", "openmpi": "4.1.4"}
    assert asked == [{"name": "cpu", "overrides": wanted, "untested": True}]
    printed_text = capsys.readouterr().out
    assert "passes  one_check" in printed_text
    assert f"{REFERENCE}: 1 of 1 checks pass on two ranks over MPI" in printed_text
    assert f"{REFERENCE}: 1 of 1 checks pass on two ranks over Gloo" in printed_text
    assert "`versions`" in printed_text


def test_python_selects_its_suite_and_openmpi(checks_say: Any) -> None:
    asked = checks_say(result())
    assert try_tensorflow.main("2.99.0", python="3.13") == 0
    wanted = {"tensorflow": "2.99.0", "python": "3.13", "suite": "trixie", "openmpi": "5.0.7"}
    assert asked == [{"name": "cpu", "overrides": wanted, "untested": True}]


def test_known_combination_is_built_without_untested(
    checks_say: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    default = load_catalogue()["cpu"].versions["tensorflow"]
    asked = checks_say(result())
    assert try_tensorflow.main(default, python="3.13") == 0
    wanted = {"tensorflow": default, "python": "3.13"}
    assert asked == [{"name": "cpu", "overrides": wanted, "untested": False}]
    assert "`versions`" not in capsys.readouterr().out


def test_python_of_no_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert try_tensorflow.main("2.99.0", python="3.2") == 1
    assert "python=3.2 is not among the combinations" in capsys.readouterr().err


def test_failed_check_is_listed_with_its_message(
    checks_say: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    checks_say(result(another_check={"1": "Traceback\n  File\nValueError: no ref\n"}))
    assert try_tensorflow.main("2.99.0") == 1
    printed_text = capsys.readouterr().out
    assert "fails   another_check\n        ValueError: no ref" in printed_text
    assert "1 of 2 checks pass" in printed_text
    assert "`versions`" not in printed_text


def test_failure_over_gloo_alone_is_a_failure(
    checks_say: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    checks_say(result(), result(another_check={"0": "ValueError: no ref\n"}))
    assert try_tensorflow.main("2.99.0") == 1
    assert "1 of 2 checks pass on two ranks over Gloo" in capsys.readouterr().out


def test_checks_without_a_result_are_a_failure(
    checks_say: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    checks_say("noise, and no result")
    assert try_tensorflow.main("2.99.0") == 1
    printed_text = capsys.readouterr().out
    assert "did not finish" in printed_text
    assert "a traceback" in printed_text


def test_build_error_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(name: str, **options: Any) -> None:
        raise ImageError("no such version", "choose another")

    monkeypatch.setattr(try_tensorflow, "build", build)
    assert try_tensorflow.main("9.9.9") == 1
    assert "TensorFlow 9.9.9: no such version" in capsys.readouterr().err

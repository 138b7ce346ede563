"""The image of a call: that of the framework which the function or this program imports."""

from __future__ import annotations

import io
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hvdchart
from devtools.common.repository import ROOT
from hvdchart.errors import CallError, ClusterError, HvdchartError
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.calls.pod import own_rank
from tests.unit.hvdchart.played_runs import installed_values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> io.StringIO:
    """What a caller without a cluster prints."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return io.StringIO()


def test_calls_run_in_the_image_of_the_imported_framework(
    settings: dict[str, Any], helm: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    output = settings["output"]
    with hvdchart.Caller(name="hvd", output=output) as caller:
        assert len(caller(own_rank)) == 2
    sent = installed_values(helm)
    assert "image pytorch/pytorch:" in output.getvalue()
    assert sent["image"]["repository"] == "pytorch/pytorch"


def use_tensorflow_and_wandb() -> None:
    import tensorflow  # noqa: F401
    import wandb  # type: ignore[import-not-found]  # noqa: F401


def use_torch() -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: F401


def test_each_call_gets_the_image_of_its_own_framework(
    settings: dict[str, Any], helm: StubProgram
) -> None:
    chosen = []
    with hvdchart.Caller(name="hvd", output=settings["output"]) as caller:
        for function in (use_torch, own_rank, use_tensorflow_and_wandb):
            # This machine has none of them.
            with suppress(HvdchartError, ImportError):
                caller(function)
            chosen.append(installed_values(helm)["image"]["repository"])
    assert chosen == ["pytorch/pytorch", "pytorch/pytorch", "tensorflow/tensorflow"]


def use_horovod() -> None:
    import horovod.torch  # noqa: F401


def test_image_is_that_of_what_the_function_imports(no_cluster: io.StringIO) -> None:
    """Also where it does so when it is called; what the image lacks is told."""
    with hvdchart.Caller(output=no_cluster) as caller, pytest.raises(ClusterError):
        caller(use_tensorflow_and_wandb)
    printed = no_cluster.getvalue()
    assert "image tensorflow/tensorflow:2.20.0, " in printed
    assert re.search(r"warning: .* wandb .*requirements\.txt", printed)
    assert "cpu=" in printed


def test_modules_of_this_machine_that_a_call_uses_are_reported(no_cluster: io.StringIO) -> None:
    with hvdchart.Caller(output=no_cluster) as caller, pytest.raises(ClusterError):
        caller(own_rank)
    line = f"warning: .* tests .*code={str(ROOT)!r}\n"
    assert re.search(line, no_cluster.getvalue())


def test_an_image_of_another_python_is_refused_without_a_cluster(
    no_cluster: io.StringIO,
) -> None:
    """Another function may be called then."""
    says = (
        r"image horovod/horovod:\S+, .* horovod, .*Python 3\.8, .* "
        r"horovod-cpu \(TensorFlow, Python 3\.13\)"
    )
    with hvdchart.Caller(output=no_cluster) as caller:
        with pytest.raises(CallError, match=says):
            caller(use_horovod)
        with pytest.raises(ClusterError):
            caller(use_tensorflow_and_wandb)
    named = hvdchart.Caller(image="horovod/horovod:0.28.1", output=no_cluster)
    with named, pytest.raises(CallError, match=r"Python 3\.8"):
        named(own_rank)

"""Horovod with PyTorch. The checks are in `ranks`, the example in examples/digits_torch.py."""

from __future__ import annotations

import json

import pytest

from devtools.common.repository import ROOT
from tests.images.sandboxes import in_image
from tests.support.in_image.checks import assert_all_pass
from tests.support.in_image.sandbox import (
    TWO_RANKS,
    TWO_RANKS_OVER_GLOO,
    Result,
    Sandbox,
    make_open_folder,
    output_of,
)
from tests.support.results import result_of

OF_HOROVOD = ROOT / "images" / "common" / "horovod.cdx.json"
READ_SBOM = """
from importlib.metadata import distribution
print(distribution("horovod").read_text("sboms/horovod.cdx.json"))
"""
DIGITS = ("python", "digits_torch.py")
pytorch = in_image("pytorch")
examples_pytorch = in_image("examples-pytorch")


@pytest.fixture(scope="session")
def first(examples_pytorch: Sandbox) -> tuple[str, Result]:
    """Where a run of two ranks left its checkpoint, and the run: 15 epochs."""
    where = f"/output/{make_open_folder(examples_pytorch.folder / 'first').name}"
    done = digits(examples_pytorch, where=where)
    assert done.returncode == 0, output_of(done)
    return where, done


@pytest.fixture(scope="session")
def second(examples_pytorch: Sandbox, first: tuple[str, Result]) -> Result:
    """A run of one rank to epoch 16, as after a change of the cluster's size."""
    done = digits(examples_pytorch, "--epochs", "16", ranks=1, where=first[0])
    assert done.returncode == 0, output_of(done)
    return done


@pytest.mark.parametrize("launcher", [TWO_RANKS, TWO_RANKS_OVER_GLOO], ids=["mpi", "gloo"])
def test_all_checks_of_pytorch_pass(pytorch: Sandbox, launcher: tuple[str, ...]) -> None:
    assert_all_pass(pytorch, launcher)


def test_horovod_has_an_sbom_of_what_is_compiled_into_it(pytorch: Sandbox) -> None:
    # Here, since the import takes seconds.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = pytorch.succeed("python3", "-c", READ_SBOM)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    source = json.loads(OF_HOROVOD.read_text("utf-8"))
    assert document["components"] == source["components"]
    # By this name, without the local version, scanners find it in the OpenVEX document.
    assert document["metadata"]["component"]["purl"] == source["metadata"]["component"]["purl"]


def digits(inside: Sandbox, *options: str, ranks: int = 2, where: str = "") -> Result:
    launcher = TWO_RANKS if ranks == 2 else ()
    return inside.run(*launcher, *DIGITS, *options, OUTPUT_PATH=where, OMP_NUM_THREADS="1")


def test_two_ranks_learn_to_read_digits(first: tuple[str, Result]) -> None:
    learnt = result_of(first[1])
    assert learnt["accuracy"] >= 0.95
    assert learnt["ranks"] == 2
    assert learnt["ranks_agree"] is True
    assert len(learnt["losses"]) == 15
    assert "first allreduce: 2 ranks" in first[1].stdout


def test_run_resumes_from_the_checkpoint_of_another_run(
    first: tuple[str, Result], second: Result
) -> None:
    before = result_of(first[1])
    assert before["resumed_after_epoch"] == 0
    assert result_of(second)["resumed_after_epoch"] == 15
    assert "epoch 16/16" in second.stdout
    assert "epoch 15/16" not in second.stdout
    # Near where the first ended: the weights came along.
    assert result_of(second)["losses"][0] < 1.5 * before["losses"][-1]


def test_run_with_nothing_left_to_do_has_the_weights_on_all_ranks(
    examples_pytorch: Sandbox, first: tuple[str, Result], second: Result
) -> None:
    """Every rank has what rank 0 has restored."""
    third = result_of(digits(examples_pytorch, "--epochs", "16", where=first[0]))
    assert third["weights"] == result_of(second)["weights"]
    assert third["ranks_agree"] is True
    assert third["losses"] == []

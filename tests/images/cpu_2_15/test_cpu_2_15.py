"""The image with TensorFlow 2.15, from the inside, and what any image is asked for and refuses."""

from __future__ import annotations

import subprocess

import pytest

from devtools.images.build import build
from devtools.images.catalogue import ROOT, load_catalogue
from devtools.trials.sandbox import Sandbox, output_of
from tests.images.slimmed import KERAS_2

VERSIONS = load_catalogue()["cpu-2.15"].versions


def test_removed_files_are_not_needed(cpu_2_15: Sandbox) -> None:
    cpu_2_15.python(KERAS_2)
    cpu_2_15.succeed("tensorboard", "--version")


def test_onednn_is_on_also_where_tensorflow_leaves_it_off(cpu_2_15: Sandbox) -> None:
    assert cpu_2_15.succeed("printenv", "TF_ENABLE_ONEDNN_OPTS") == "1\n"


def test_check_of_the_build_lists_all_problems(cpu_2_15: Sandbox) -> None:
    (cpu_2_15.folder / "check.py").write_bytes(
        (ROOT / "images/common/check_horovod.py").read_bytes()
    )
    check = ("python3", "/output/check.py")
    done = cpu_2_15.run(*check, "tensorflow", "--with", "mpi,nccl", "--versions", "horovod=0.28.2")
    assert done.returncode == 1, output_of(done)
    assert "without nccl" in done.stderr
    assert "without mpi" not in done.stderr
    assert f"horovod is {VERSIONS['horovod']}, images/versions.yaml has 0.28.2" in done.stderr
    done = cpu_2_15.run(*check, "torch", "--with", "mpi")
    assert done.returncode == 1
    assert "horovod.torch" in done.stderr
    assert "tensorflow is installed" in done.stderr
    assert "Horovod has a library for tensorflow" in done.stderr
    done = cpu_2_15.run(*check, "no_such")
    assert done.returncode == 1
    assert "horovod.no_such cannot be imported" in done.stderr


def test_second_build_builds_nothing(cpu_2_15: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it was built again")

    monkeypatch.setattr(type(cpu_2_15.image.engine), "build", refuse)
    assert build("cpu-2.15").key == cpu_2_15.image.key
    # Nor after another state of the tree got the reference: the earlier build is kept.
    cpu_2_15.image.engine.remove(cpu_2_15.image.reference)
    assert build("cpu-2.15").key == cpu_2_15.image.key


def test_invalid_overrides_are_refused_before_a_build() -> None:
    cases = {
        ("build", "cuba"): "cuba: no such image",
        ("build", "cpu-2.15", "--set", "tensorflow=2.9.1"): "tensorflow 2.15.1 or 2.14.1",
        ("build", "cpu-2.15", "--set", "tensorflaw=2.14.1"): "cpu-2.15 has no such parameter",
        ("build", "cpu-2.15", "--set", "tensorflow"): "write it as KEY=VALUE",
        ("build", "cpu-2.15", "--set", "tensorflow=latest"): "not among the combinations",
    }
    for arguments, message in cases.items():
        done = subprocess.run(
            [ROOT / ".venv/bin/python", "-m", "images", *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1, arguments
        assert message in done.stderr
        assert "Traceback" not in done.stderr

"""The image of a script: that of its framework, and what an image lacks that the script uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.played_runs import installed_values

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    ("text", "gpus", "image", "mode"),
    [
        ("import torch.distributed as dist\n", 0, "pytorch/pytorch", "direct"),
        ("import keras, torch\n", 0, "pytorch/pytorch", "direct"),
        ("def f():\n    from tensorflow import keras\n", 1, "tensorflow/tensorflow", "direct"),
        ("import flax\n", 0, "nvcr.io/nvidia/jax", "direct"),
        ("import torch, horovod.torch as hvd\n", 0, "horovod/horovod", None),
        ("import torch_fish\n", 0, "python", "direct"),
    ],
)
def test_image_is_that_of_the_framework_that_the_script_imports(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    script: Path,
    text: str,
    gpus: int,
    image: str,
    mode: str | None,
) -> None:
    script.write_text(text)
    done = hvdchart("run", script, "--detach", "--gpus", str(gpus))
    assert done.code == 0, done.errors
    assert f"image {image}:" in done.errors
    sent = installed_values(helm)
    assert (sent["image"]["repository"], sent["launch"].get("mode")) == (image, mode)
    assert sent["image"]["tag"].endswith("-gpu") == (gpus > 0)


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        (["nodes.0.gpus=1"], "image tensorflow/tensorflow:2.20.0-gpu,"),
        (["image.repository=team/a", "image.tag=a"], ""),
    ],
)
def test_default_image_is_that_of_what_set_makes_of_the_run(
    hvdchart: Command, script: Path, settings: list[str], image: str
) -> None:
    script.write_text("import tensorflow\n")
    done = hvdchart("plan", script, *(word for setting in settings for word in ("--set", setting)))
    assert done.code == 0, done.errors
    assert ("image " in done.errors) == bool(image)
    assert image in done.errors


def test_what_the_default_image_lacks_is_reported(hvdchart: Command, script: Path) -> None:
    script.write_text("import transformers, wandb\n")
    (script.parent / "requirements.txt").write_text("wandb\n")
    done = hvdchart("plan", script, "--code", script.parent, "-o", "json")
    warning = json.loads(done.output)["warnings"][0]
    assert warning.endswith(f"add transformers to requirements.txt in {script.parent}")


PUBLIC = "tensorflow/tensorflow:2.20.0"


@pytest.mark.parametrize(
    ("text", "image", "lacked"),
    [
        ("import torch\n", PUBLIC, "torch"),
        ("import torch.distributed\n", f"docker.io/{PUBLIC}", "torch"),
        ("import horovod.torch, torch\n", "pytorch/pytorch:2.8.0", "horovod"),
        ("import torch\n", "python:3.12-slim", "torch"),
        ("import torch\n", "pytorch/pytorch:2.8.0", ""),
        ("import horovod.torch, torch\n", "horovod/horovod:latest", ""),
        ("import torch\n", "registry.example/tensorflow/tensorflow:1", ""),
        ("try:\n    import torch\nexcept ImportError:\n    pass\n", PUBLIC, ""),
    ],
)
def test_framework_that_a_named_public_image_lacks_is_reported(
    hvdchart: Command, script: Path, text: str, image: str, lacked: str
) -> None:
    script.write_text(text)
    done = hvdchart("plan", script, "--image", image, "-o", "json")
    assert done.code == 0, done.errors
    plain = image.partition(":")[0]
    warnings = [warning for warning in json.loads(done.output)["warnings"] if plain in warning]
    named = [warning.split()[3].rstrip(",") for warning in warnings]
    assert named == ([lacked] if lacked else [])


@pytest.mark.parametrize("package", ["torch", "torchvision"])
def test_framework_that_requirements_bring_is_not_lacked(
    hvdchart: Command, script: Path, package: str
) -> None:
    script.write_text("import torch\n")
    (script.parent / "requirements.txt").write_text(f"{package}\n")
    done = hvdchart("plan", script, "--image", PUBLIC, "--code", script.parent, "-o", "json")
    repository = PUBLIC.partition(":")[0]
    warnings = json.loads(done.output)["warnings"]
    assert not [warning for warning in warnings if repository in warning]


def test_package_with_a_similar_name_does_not_bring_the_framework(
    hvdchart: Command, script: Path
) -> None:
    script.write_text("import jax\n")
    (script.parent / "requirements.txt").write_text("jaxtyping\n")
    done = hvdchart("plan", script, "--image", PUBLIC, "--code", script.parent, "-o", "json")
    repository = PUBLIC.partition(":")[0]
    warnings = json.loads(done.output)["warnings"]
    (warning,) = [warning for warning in warnings if repository in warning]
    assert "jax" in warning


def test_module_that_the_code_has_is_not_lacked(hvdchart: Command, script: Path) -> None:
    script.write_text("import datasets, trl\n")
    (script.parent / "datasets").mkdir()
    (script.parent / "datasets" / "scans.py").write_text("")
    done = hvdchart("plan", script, "--code", script.parent, "-o", "json")
    assert "add trl to" in json.loads(done.output)["warnings"][0]

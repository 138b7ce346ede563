"""The examples, as plain Helm runs them in the images: those of PyTorch have another script."""

from __future__ import annotations

import pytest

from devtools.common.repository import EXAMPLES
from tests.support.namespace import Namespace, Values
from tests.support.results import read_result

SMALL = [
    "--model",
    "vgg16",
    "--image-size",
    "32",
    "--batch-size",
    "2",
    "--warmup",
    "1",
    "--rounds",
    "3",
    "--steps",
    "1",
]
TORCH = ["python", "/examples/digits_torch.py", "--epochs", "4", "--target-accuracy", "0.8"]


def test_benchmark_measures_two_ranks(namespace: Namespace) -> None:
    script = (EXAMPLES / "benchmark.py").read_text()
    values = {
        "code": {"files": {"benchmark.py": script}},
        "master": {"args": ["python", "benchmark.py", *SMALL], "backoffLimit": 0},
    }
    result = read_result(namespace.train("hvd", values))
    assert result["ranks"] == 2
    assert len(result["perRank"]) == 2
    assert len(result["rounds"]) == 3
    assert result["samplesPerSecond"] > 0
    # Both are means of the same rounds.
    assert abs(sum(result["perRank"]) - result["samplesPerSecond"]) < 0.01


def torch_values(image: dict[str, str], **launch: object) -> Values:
    return {
        "image": image,
        "worker": {"number": 2, "slots": 1, "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]},
        "master": {"args": TORCH},
        "launch": {"workersTimeoutSeconds": 120, **launch},
    }


@pytest.fixture(scope="class")
def torch_logs(namespace: Namespace, pytorch_image: dict[str, str]) -> dict[str, str]:
    """The logs of the releases `mpi` and `gloo`, which have trained at the same time."""
    modules = ["torch", "horovod.torch"]
    namespace.install("mpi", torch_values(pytorch_image, preload=modules))
    gloo = torch_values(pytorch_image, mode="direct", preload=modules)
    namespace.install("gloo", gloo)
    logs = {}
    for release in ("mpi", "gloo"):
        namespace.assert_completes(release)
        logs[release] = namespace.log(release)
    return logs


class TestPyTorch:
    @pytest.mark.parametrize("release", ["mpi", "gloo"])
    def test_two_ranks_train_and_agree(self, torch_logs: dict[str, str], release: str) -> None:
        run = read_result(torch_logs[release])
        assert run["ranks"] == 2
        assert run["ranks_agree"] is True
        assert run["ok"] is True

    def test_losses_are_equal_under_both_launchers(self, torch_logs: dict[str, str]) -> None:
        mpi, gloo = (read_result(torch_logs[release])["losses"] for release in ("mpi", "gloo"))
        assert mpi == pytest.approx(gloo, rel=1e-4)

    def test_helm_test_measures_the_allreduce(
        self, torch_logs: dict[str, str], namespace: Namespace
    ) -> None:
        done = namespace.helm("test", "mpi", "--timeout", "300s")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "allreduce of 32 MiB over 2 ranks" in done.stdout + done.stderr
        assert namespace.replicas("mpi-worker") == 0

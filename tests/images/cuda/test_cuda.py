"""Horovod with TensorFlow for NVIDIA's GPUs: `cuda` and `cuda-next`. None of these needs one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from devtools.images.catalogue import Image
from devtools.trials.checks import (
    COMMON,
    OF_KERAS_2,
    OF_KERAS_3,
    WITH_TF_KERAS,
    assert_all_pass,
    install_tf_keras,
)
from devtools.trials.sandbox import TWO_RANKS, Sandbox
from tests.images.slimmed import KERAS_2, KERAS_3

PACKAGES = "/usr/local/lib/python3.11/site-packages"
# What TensorFlow opens by name once it finds a driver, and what those open in turn.
OPENED = (
    *("cublas", "cublasLt", "cudart", "cudnn", "cufft", "cupti", "curand", "cusolver", "cusparse"),
    *("nccl", "nvJitLink", "nvrtc"),
)


class Training(NamedTuple):
    includes: str  # a check that must be among those that were run
    checks: tuple[str, ...] = ()  # none for all that there are
    environment: Mapping[str, str] = {}


class Case(NamedTuple):
    cudnn: tuple[str, ...]  # the parts that cuDNN opens
    xla_operations: bool  # whether Horovod has them
    uses: str  # a program that shows that nothing was slimmed away too much
    trains: tuple[Training, ...]


CASES = {
    "cuda": Case(
        ("cudnn_cnn_infer", "cudnn_cnn_train", "cudnn_ops_infer", "cudnn_ops_train"),
        True,
        KERAS_2,
        (Training(COMMON[0], COMMON),),
    ),
    "cuda-next": Case(
        # Not cudnn_engines_runtime_compiled: it asks for the driver itself, which the node brings.
        (
            *("cudnn_adv", "cudnn_cnn", "cudnn_engines_precompiled", "cudnn_engines_tensor_ir"),
            *("cudnn_ext", "cudnn_graph", "cudnn_heuristic", "cudnn_ops"),
        ),
        False,
        KERAS_3,
        (Training(OF_KERAS_3), Training(OF_KERAS_2, environment=WITH_TF_KERAS)),
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    case = CASES[metafunc.config.getoption("--prove")]
    if "library" in metafunc.fixturenames:
        metafunc.parametrize("library", (*OPENED, *case.cudnn))
    if "training" in metafunc.fixturenames:
        metafunc.parametrize("training", case.trains)


@pytest.fixture
def case(image: Image) -> Case:
    return CASES[image.name]


def test_library_that_tensorflow_opens_loads(inside: Sandbox, library: str) -> None:
    inside.python(
        "import ctypes, pathlib\n"
        f"(file,) = pathlib.Path('{PACKAGES}/nvidia').glob('*/lib/lib{library}.so.*[0-9]')\n"
        "ctypes.CDLL(str(file))"
    )


def test_xla_has_ptxas_and_libdevice(inside: Sandbox) -> None:
    home = f"{PACKAGES}/nvidia/cuda_nvcc"
    assert "release 12." in inside.succeed(f"{home}/bin/ptxas", "--version")
    inside.succeed("test", "-s", f"{home}/nvvm/libdevice/libdevice.10.bc")


def test_only_cuda_has_horovods_xla_operations(case: Case, inside: Sandbox) -> None:
    # What XLA is to call, by the name that it is told.
    count = f"grep --count CallbackHVDAllreduce {PACKAGES}/horovod/tensorflow/mpi_lib*.so"
    assert inside.run("sh", "-c", count).returncode == (0 if case.xla_operations else 1)


def test_removed_files_are_not_needed(case: Case, inside: Sandbox) -> None:
    inside.python(case.uses)
    inside.succeed("tensorboard", "--version")


def test_training_works_without_a_gpu(inside: Sandbox, training: Training) -> None:
    if training.environment == WITH_TF_KERAS:
        install_tf_keras(inside)
    passed = assert_all_pass(inside, TWO_RANKS, *training.checks, **training.environment)
    assert training.includes in passed

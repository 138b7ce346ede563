"""Images for NVIDIA's GPUs, from the inside. None of these tests needs a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from images.builder.catalogue import Image
from tests.images.slimmed import KERAS_3, TORCH
from tests.support.in_image.checks import (
    COMMON,
    OF_KERAS_2,
    OF_KERAS_3,
    WITH_TF_KERAS,
    assert_all_pass,
    install_tf_keras,
)
from tests.support.in_image.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox

PACKAGES = "/usr/local/lib/python3.11/site-packages"
NCCL = f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2"
COMPILER = f"{PACKAGES}/nvidia/cuda_nvcc"
# What TensorFlow opens by name once it finds a driver, and what those open in turn.
OF_TENSORFLOW = (
    "cublas",
    "cublasLt",
    "cudart",
    "cudnn",
    "cufft",
    "cupti",
    "curand",
    "cusolver",
    "cusparse",
    "nccl",
    "nvJitLink",
    "nvrtc",
)
# What XLA compiles with.
HAS_COMPILER = (
    f"{COMPILER}/bin/ptxas --version | grep -q 'release 12[.]'",
    f"test -s {COMPILER}/nvvm/libdevice/libdevice.10.bc",
    "tensorboard --version",
)


class Training(NamedTuple):
    includes: str  # a check that must be among those that were run
    checks: tuple[str, ...] = ()  # none for all that there are
    environment: Mapping[str, str] = {}
    launcher: tuple[str, ...] = TWO_RANKS


class Case(NamedTuple):
    libraries: tuple[str, ...]  # that the framework, or a library of them, opens by name
    uses: str  # a program that shows that nothing was slimmed away too much
    trainings: tuple[Training, ...]
    commands: tuple[str, ...] = ("true",)  # of a shell, which succeed


CASES = {
    "cuda": Case(
        # Not cudnn_engines_runtime_compiled: it asks for the driver itself, which the node brings.
        (
            *OF_TENSORFLOW,
            "cudnn_adv",
            "cudnn_cnn",
            "cudnn_engines_precompiled",
            "cudnn_engines_tensor_ir",
            "cudnn_ext",
            "cudnn_graph",
            "cudnn_heuristic",
            "cudnn_ops",
        ),
        KERAS_3,
        (Training(OF_KERAS_3), Training(OF_KERAS_2, environment=WITH_TF_KERAS)),
        HAS_COMPILER,
    ),
    "pytorch-cuda": Case(
        (
            "cublasLt",
            "cudnn_adv",
            "cudnn_cnn",
            "cudnn_engines_precompiled",
            "cudnn_graph",
            "cudnn_engines_runtime_compiled",
            "cudnn_heuristic",
            "cudnn_ops",
            "cupti",
            "cusolver",
            "nvJitLink",
            "nvrtc",
            "nvrtc-builtins",
        ),
        TORCH,
        (Training(COMMON[0]), Training(COMMON[0], launcher=TWO_RANKS_OVER_GLOO)),
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    case = CASES[metafunc.config.getoption("--image", default=None) or "cuda"]
    for name, rows in (
        ("library", case.libraries),
        ("training", case.trainings),
        ("command", case.commands),
    ):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, rows)


class Framework(NamedTuple):
    for_cuda: str  # an expression that is true where it was compiled for CUDA
    libraries: str  # those in memory when Horovod is loaded, which never looks for them
    first: str = ""  # what is imported before its libraries find each other


FRAMEWORKS = {
    "tensorflow": Framework("tensorflow.test.is_built_with_cuda()", "tensorflow/lib*.so.*"),
    "torch": Framework("torch.version.cuda is not None", "torch/lib/lib*.so", "import torch\n"),
}
# The compiled kernels are in Horovod's library: packed blocks, each a header and entries with a
# header of their own, which says for what GPU it is, and whether as machine code or to be compiled
# by the driver.
READ_KERNELS = """
import pathlib, struct
(library,) = pathlib.Path("FOLDER").glob("mpi_lib*.so")
data = library.read_bytes()
at = data.find(b"\\x50\\xed\\x55\\xba")
while at >= 0:
    header, length = struct.unpack_from("<HQ", data, at + 6)
    entry, end = at + header, at + header + length
    while entry < end:
        kind, _, header, length = struct.unpack_from("<HHIQ", data, entry)
        (gpu,) = struct.unpack_from("<I", data, entry + 28)
        print({1: "compiled later for", 2: "compiled for"}[kind], gpu)
        entry += header + length
    at = data.find(b"\\x50\\xed\\x55\\xba", end)
"""


@pytest.fixture
def framework(image: Image) -> str:
    assert image.framework is not None
    return image.framework


@pytest.fixture
def equipped(inside: Sandbox, training: Training) -> Sandbox:
    """A sandbox with the Keras of a training."""
    if training.environment == WITH_TF_KERAS:
        install_tf_keras(inside)
    return inside


def test_horovod_has_mpi_gloo_and_nccl(framework: str, inside: Sandbox) -> None:
    output = inside.python(
        f"import horovod.{framework} as hvd, {framework};"
        "print(bool(hvd.mpi_built()), bool(hvd.gloo_built()), bool(hvd.nccl_built()),"
        f" bool(hvd.cuda_built()), bool(hvd.rocm_built()), {FRAMEWORKS[framework].for_cuda})"
    )
    assert output.split() == ["True", "True", "True", "True", "False", "True"]


def test_horovod_loads_the_only_nccl(framework: str, inside: Sandbox) -> None:
    libraries = inside.run("find", "/", "-xdev", "-name", "*nccl*.so*", "-not", "-path", "/proc/*")
    assert libraries.stdout.split() == [NCCL]
    # With no setting of the system.
    loaded = inside.succeed(
        "env",
        "-i",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "python3",
        "-c",
        f"import horovod.{framework}\n"
        "lines = [line.split() for line in open('/proc/self/maps')]\n"
        "print(*sorted({line[5] for line in lines if len(line) > 5 and 'libnccl' in line[5]}))",
    )
    assert loaded.split() == [NCCL]


def test_nccl_has_the_version_of_the_versions_file(image: Image, inside: Sandbox) -> None:
    (pinned,) = (value for name, value in image.versions.items() if "-nccl-" in name)
    output = inside.python(
        f"import ctypes; nccl = ctypes.CDLL('{NCCL}'); version = ctypes.c_int();"
        "nccl.ncclGetVersion(ctypes.byref(version)); print(version.value)"
    )
    major, minor, patch = (int(word) for word in pinned.split("."))
    assert int(output) == major * 10000 + minor * 100 + patch


def test_horovods_libraries_are_all_found(framework: str, inside: Sandbox) -> None:
    listed = inside.succeed("sh", "-c", f"ldd {PACKAGES}/horovod/{framework}/mpi_lib*.so")
    missing = {line.split()[0] for line in listed.splitlines() if "not found" in line}
    loaded = inside.succeed("sh", "-c", f"ls {PACKAGES}/{FRAMEWORKS[framework].libraries}")
    assert missing <= {path.rpartition("/")[2] for path in loaded.split()}, listed


def test_horovods_kernels_are_for_the_compute_capabilities(
    image: Image, framework: str, inside: Sandbox
) -> None:
    chosen = image.options["compute-capabilities"].split(",")
    expected = {f"compiled for {gpu}" for gpu in chosen} | {f"compiled later for {chosen[-1]}"}
    kernels = inside.python(READ_KERNELS.replace("FOLDER", f"{PACKAGES}/horovod/{framework}"))
    assert set(kernels.splitlines()) == expected


def test_gpu_compiler_is_not_in_the_image(inside: Sandbox) -> None:
    names = ["nvcc", "cicc", "cudafe++", "fatbinary", "nvlink", "libnvvm.so*", "cuda_runtime.h"]
    either = " -o ".join(f"-name '{name}'" for name in names)
    # Triton compiles, and brings for that what it takes.
    elsewhere = "-not -path '/proc/*' -not -path '*/triton/*'"
    files = inside.run("sh", "-c", f"find / -xdev \\( {either} \\) {elsewhere}")
    assert files.stdout == ""


def test_image_requests_driver_capabilities(inside: Sandbox) -> None:
    output = inside.succeed("printenv", "NVIDIA_DRIVER_CAPABILITIES")
    assert output.strip() == "compute,utility"
    # Which GPUs is for Kubernetes to say.
    assert inside.run("printenv", "NVIDIA_VISIBLE_DEVICES").returncode != 0


def test_library_that_the_framework_opens_loads(
    framework: str, inside: Sandbox, library: str
) -> None:
    inside.python(
        f"{FRAMEWORKS[framework].first}import ctypes, pathlib\n"
        f"(file,) = pathlib.Path('{PACKAGES}/nvidia').glob('*/lib/lib{library}.so.*[0-9]')\n"
        "ctypes.CDLL(str(file))"
    )


def test_command_succeeds(inside: Sandbox, command: str) -> None:
    inside.succeed("sh", "-c", command)


def test_removed_files_are_not_needed(image: Image, inside: Sandbox) -> None:
    inside.python(CASES[image.name].uses)


def test_training_works_without_a_gpu(equipped: Sandbox, training: Training) -> None:
    passed = assert_all_pass(equipped, training.launcher, *training.checks, **training.environment)
    assert training.includes in passed

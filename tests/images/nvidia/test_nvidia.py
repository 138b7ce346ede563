"""What holds for every image for NVIDIA's GPUs, from the inside. None of these needs a GPU."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from devtools.images.catalogue import Image
from devtools.trials.sandbox import Sandbox

PACKAGES = "/usr/local/lib/python3.11/site-packages"
NCCL = f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2"


class Framework(NamedTuple):
    for_cuda: str  # an expression that is true where it was compiled for CUDA
    libraries: str  # those in memory when Horovod is loaded, which never looks for them


FRAMEWORKS = {
    "tensorflow": Framework("tensorflow.test.is_built_with_cuda()", "tensorflow/lib*.so.*"),
    "torch": Framework("torch.version.cuda is not None", "torch/lib/lib*.so"),
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
    # With no setting of the system: as an SSH session starts a rank.
    loaded = inside.succeed(
        *("env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-c"),
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

"""The image for NVIDIA's GPUs, from the inside. None of these needs a GPU."""

from __future__ import annotations

import pytest

from images.catalogue import Image
from tests.images.checks import install, results, run, wrong
from tests.images.sandbox import TWO_RANKS, Sandbox

PACKAGES = "/usr/local/lib/python3.11/site-packages"
NCCL = f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2"
# What TensorFlow opens by name once it finds a driver, and what those open in turn.
OPENED = (
    *("cublas", "cublasLt", "cudart", "cudnn", "cufft", "cupti", "curand", "cusolver", "cusparse"),
    *("cudnn_cnn_infer", "cudnn_cnn_train", "cudnn_ops_infer", "cudnn_ops_train"),
    *("nccl", "nvJitLink", "nvrtc"),
)
# The compiled kernels are in Horovod's library: packed blocks, each a header and entries with a
# header of their own, which says for what GPU it is, and whether as machine code or to be compiled
# by the driver.
READ_KERNELS = f"""
import pathlib, struct
(library,) = pathlib.Path("{PACKAGES}/horovod/tensorflow").glob("mpi_lib*.so")
data = library.read_bytes()
at = data.find(b"\\x50\\xed\\x55\\xba")
while at >= 0:
    header, length = struct.unpack_from("<HQ", data, at + 6)
    entry, end = at + header, at + header + length
    while entry < end:
        kind, _, header, length = struct.unpack_from("<HHIQ", data, entry)
        (gpu,) = struct.unpack_from("<I", data, entry + 28)
        print({{1: "compiled later for", 2: "compiled for"}}[kind], gpu)
        entry += header + length
    at = data.find(b"\\x50\\xed\\x55\\xba", end)
"""


def test_horovod_has_mpi_gloo_and_nccl(inside: Sandbox) -> None:
    said = inside.python(
        "import horovod.tensorflow as hvd, tensorflow as tf;"
        "print(bool(hvd.mpi_built()), bool(hvd.gloo_built()), bool(hvd.nccl_built()),"
        " bool(hvd.cuda_built()), bool(hvd.rocm_built()), tf.test.is_built_with_cuda())"
    )
    assert said.split() == ["True", "True", "True", "True", "False", "True"]


def test_there_is_one_nccl_and_horovod_runs_on_it(inside: Sandbox) -> None:
    found = inside.run("find", "/", "-xdev", "-name", "*nccl*.so*", "-not", "-path", "/proc/*")
    assert found.stdout.split() == [NCCL]
    # With no setting of the system: as an SSH session starts a rank.
    loaded = inside.succeed(
        *("env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-c"),
        "import horovod.tensorflow\n"
        "lines = [line.split() for line in open('/proc/self/maps')]\n"
        "print(*sorted({line[5] for line in lines if len(line) > 5 and 'libnccl' in line[5]}))",
    )
    assert loaded.split() == [NCCL]


def test_nothing_that_horovod_needs_is_missing(inside: Sandbox) -> None:
    """TensorFlow's two libraries are in memory when Horovod is loaded, which never looks for
    them.
    """
    listed = inside.succeed("sh", "-c", f"ldd {PACKAGES}/horovod/tensorflow/mpi_lib*.so")
    missing = [line.split()[0] for line in listed.splitlines() if "not found" in line]
    assert set(missing) <= {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"}, listed


def test_horovods_kernels_are_for_the_gpus_that_were_chosen(image: Image, inside: Sandbox) -> None:
    chosen = image.options["compute-capabilities"].split(",")
    expected = {f"compiled for {gpu}" for gpu in chosen} | {f"compiled later for {chosen[-1]}"}
    assert set(inside.python(READ_KERNELS).splitlines()) == expected


@pytest.mark.parametrize("name", OPENED)
def test_a_library_that_tensorflow_opens_is_there_with_what_it_needs(
    inside: Sandbox, name: str
) -> None:
    inside.python(
        "import ctypes, pathlib\n"
        f"(file,) = pathlib.Path('{PACKAGES}/nvidia').glob('*/lib/lib{name}.so.*[0-9]')\n"
        "ctypes.CDLL(str(file))"
    )


def test_xla_has_its_assembler_and_its_library(inside: Sandbox) -> None:
    home = f"{PACKAGES}/nvidia/cuda_nvcc"
    assert "release 12." in inside.succeed(f"{home}/bin/ptxas", "--version")
    inside.succeed("test", "-s", f"{home}/nvvm/libdevice/libdevice.10.bc")


def test_no_compiler_for_gpus_is_left(inside: Sandbox) -> None:
    names = ["nvcc", "cicc", "cudafe++", "fatbinary", "nvlink", "libnvvm.so*", "cuda_runtime.h"]
    either = " -o ".join(f"-name '{name}'" for name in names)
    found = inside.run("sh", "-c", f"find / -xdev \\( {either} \\) -not -path '/proc/*'")
    assert found.stdout == ""


def test_the_container_runtime_is_asked_for_the_driver(inside: Sandbox) -> None:
    said = inside.succeed("printenv", "NVIDIA_DRIVER_CAPABILITIES")
    assert said.strip() == "compute,utility"
    # Which GPUs is for Kubernetes to say.
    assert inside.run("printenv", "NVIDIA_VISIBLE_DEVICES").returncode != 0


def test_what_was_slimmed_away_is_not_missed(inside: Sandbox) -> None:
    inside.python(
        "import tensorflow as tf, tensorboard.main, horovod.tensorflow.keras, horovod.runner;"
        "import h5py, grpc, tensorflow.lite, numpy.random;"
        "m = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))]);"
        "m.compile('sgd', 'mse', jit_compile=True);"
        "import numpy as np; m.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0);"
        "[m.save(f'/tmp/m{s}') or tf.keras.models.load_model(f'/tmp/m{s}')"
        " for s in ('.h5', '.keras', '')]"
    )


def test_without_a_gpu_it_trains_on_cpus(inside: Sandbox) -> None:
    install(inside)
    checks = (
        "an_optimizer_trains_as_one_process_with_all_batches",
        "the_callbacks_broadcast_and_average",
    )
    found = results(run(inside, TWO_RANKS, *checks))
    assert wrong(found) == ""
    assert set(found) == set(checks)

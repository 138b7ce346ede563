"""Horovod's source with all patches: how it is written, built and patched. No image is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devtools.common.errors import DevtoolsError
from images.builder.catalogue import load_catalogue
from images.builder.sdist import PATCHES, write_sdist
from images.common import build_horovod

# A framework for which CMAKE below "compiles", and a second that is not there.
FRAMEWORK = "__version__ = '1.0'"
CMAKE = """#!/bin/sh -e
case "$1" in
    --version) exec echo cmake version 3.31 ;;
    --build) exit ;;
esac
for argument; do
    case "$argument" in
        -DPYTHON_EXECUTABLE*) python="${argument#*=}" ;;
        -DCMAKE_LIBRARY_OUTPUT_DIRECTORY*) out="${argument#*=}" ;;
    esac
done
"$python" -c "import torch" || exit 0
mkdir -p "$out/horovod/torch"
echo compiled > "$out/horovod/torch/mpi_lib_v2.so"
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_horovod.patched_source(tmp_path_factory.mktemp("released"), [])


@pytest.fixture
def said_by_cmake(tmp_path: Path) -> str:
    """What Horovod's modules say where Python has no framework; CMake fails then."""
    series = build_horovod.patches(load_catalogue()["cpu"].folder)
    modules = build_horovod.patched_source(tmp_path / "work", series) / "cmake" / "Modules"
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Traceback:' >&2\necho 'Error: none' >&2\nexit 1\n")
    python.chmod(0o755)
    script = tmp_path / "find.cmake"
    script.write_text(
        f'list(APPEND CMAKE_MODULE_PATH "{modules}")\nset(PY_EXE "{python}")\n'
        "find_package(Mxnet)\nfind_package(Tensorflow)\nfind_package(Pytorch REQUIRED)\n"
    )
    done = subprocess.run(
        ["cmake", "-P", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode != 0
    return " ".join((done.stdout + done.stderr).split())


def test_source_is_written_into_a_folder_that_exists(tmp_path: Path) -> None:
    with pytest.raises(DevtoolsError, match="missing: no such folder"):
        write_sdist(tmp_path / "missing")


@pytest.mark.parametrize(
    ("label", "expected"), [("", "0.28.1+patched"), ("tf2.21", "0.28.1+patched.tf2.21")]
)
def test_local_version_follows_that_of_the_source(
    label: str, expected: str, tmp_path: Path
) -> None:
    """A version with two plus signs is none."""
    archive = write_sdist(tmp_path)
    shutil.unpack_archive(archive, tmp_path)
    version = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        check=True,
        env=os.environ | {"HOROVOD_LOCAL_VERSION": label},
        cwd=archive.with_name(archive.name.removesuffix(".tar.gz")),
        capture_output=True,
        text=True,
    )
    assert version.stdout.splitlines()[-1] == expected


@pytest.mark.parametrize(
    "isolation", [(), pytest.param(("--no-build-isolation",), marks=pytest.mark.rare)]
)
def test_source_builds_for_the_frameworks_that_are_installed(
    isolation: Sequence[str], tmp_path: Path
) -> None:
    """As `pip install ./horovod-*.tar.gz` does it. A CMake that does nothing tells what it saw."""
    archive = write_sdist(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    if isolation:
        tools = [str(python), "-m", "pip", "install", "--quiet", "setuptools", "wheel", "packaging"]
        subprocess.run(tools, check=True)
    cmake = tmp_path / "cmake"
    cmake.write_text(CMAKE)
    cmake.chmod(0o755)
    build = [str(python), "-m", "pip", "wheel", "--no-deps", *isolation, str(archive)]
    environment = os.environ | {"HOROVOD_CMAKE": str(cmake)}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            build, check=False, env=environment, cwd=tmp_path, capture_output=True, text=True
        )

    without = run()
    assert without.returncode != 0
    assert "Found none of TensorFlow, PyTorch and MXNet" in without.stdout + without.stderr
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (packages / "torch.py").write_text(FRAMEWORK)
    done = run()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("horovod-0.28.1+patched-")
    assert zipfile.ZipFile(wheel).read("horovod/torch/mpi_lib_v2.so") == b"compiled\n"


# What Horovod asks which GPUs there are.
NVCC = """#!/bin/sh
cat << END
--gpu-architecture <arch>  (-arch)
        Allowed values for this option:  'compute_90','compute_90a','sm_100','sm_100a','sm_100f',
        'sm_90','sm_90a'.
--gpu-code <code>,...  (-code)
END
"""
FLAGS = "import build_utils; print(*build_utils.get_nvcc_flags()[3:])"


@pytest.mark.parametrize(
    ("variables", "compiled", "later"),
    [
        ({}, ["90", "100"], "100"),
        ({"HOROVOD_BUILD_CUDA_CC_LIST": "100f, 90a,80"}, ["80", "90a", "100f"], "100"),
        ({"NVCC_GENCODE": "-arch=sm_90a", "HOROVOD_BUILD_CUDA_CC_LIST": "90"}, ["90"], "90"),
        ({"NVCC_GENCODE": "-arch=sm_90a"}, [], ""),
    ],
)
def test_kernels_are_compiled_for_architectures_with_a_suffix(
    variables: Mapping[str, str],
    compiled: Sequence[str],
    later: str,
    released: Path,
    tmp_path: Path,
) -> None:
    """Other GPUs run only the intermediate code of an architecture without one."""
    source = tmp_path / "source"
    shutil.copytree(released / "cmake", source / "cmake")
    patch = build_horovod.PATCHES / "cuda-architectures.patch"
    subprocess.run(["patch", "--quiet", "--strip=1", f"--input={patch}"], check=True, cwd=source)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
    asked = subprocess.run(
        [sys.executable, "-c", FLAGS],
        cwd=source / "cmake",
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    expected = [f"-gencode arch=compute_{name},code=sm_{name}" for name in compiled]
    expected += [f"-gencode arch=compute_{later},code=compute_{later}"] if later else []
    assert asked.stdout.strip() == " ".join(expected or ["-arch=sm_90a"])


@pytest.mark.parametrize(
    "folder",
    [
        *(
            image.folder
            for image in load_catalogue().values()
            if build_horovod.patches(image.folder)
        ),
        PATCHES,
    ],
    ids=lambda folder: folder.name,
)
def test_series_applies_as_commits(folder: Path, released: Path, tmp_path: Path) -> None:
    """As upstream and packagers take it: `git am` on the released source."""
    source = shutil.copytree(released, tmp_path / "source")
    # The archive has another owner.
    settings = ("safe.directory=*", "user.name=a", "user.email=a@example")
    git = ["git", "-C", str(source), *(word for setting in settings for word in ("-c", setting))]
    series = build_horovod.patches(folder)
    for command in (["init"], ["add", "--force", "."], ["commit", "-m", "0.28.1"], ["am", *series]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    subjects = subprocess.run(
        [*git, "log", "--format=%s", f"-{len(series)}"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert len(set(subjects)) == len(series)
    assert max(map(len, subjects)) <= 72


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake")
def test_cmake_says_in_a_line_why_a_framework_is_not_found(said_by_cmake: str) -> None:
    """horovod#3902: pip compiles in an environment of its own, which has no framework."""
    frameworks = re.findall(r"python cannot import (\w+) \(Error: none\)\.", said_by_cmake)
    assert sorted(frameworks) == ["mxnet", "tensorflow", "torch"]
    assert said_by_cmake.count("--no-build-isolation") == 3
    assert "Traceback" not in said_by_cmake

"""How the compiler for GPUs is put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.builder.catalogue import load_catalogue
from images.nvidia import toolchain

NVCC = "#!/bin/sh\n[ \"$1\" = --list-gpu-arch ] && printf 'compute_80\\ncompute_90\\n'\n"


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base image with an nvcc of its own, and the packages of a framework."""
    for place, name in (("BROUGHT", "brought"), ("LINKS", "links")):
        monkeypatch.setattr(toolchain, place, tmp_path / name)
    monkeypatch.setattr(toolchain, "site_packages", lambda: tmp_path / "site")
    nvcc = tmp_path / "brought" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    for name in ("nccl/lib/libnccl.so.2", "cuda_runtime/lib/libcudart.so.12"):
        file = tmp_path / "site" / "nvidia" / name
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setenv("HOROVOD_BUILD_CUDA_CC_LIST", "80,90")
    return tmp_path


def test_nvcc_of_the_base_image_is_used(brought: Path) -> None:
    variables = toolchain.prepare(brought, brought / "cuda")
    assert (brought / "cuda").resolve() == brought / "brought"
    assert variables["CUDACXX"] == f"{brought}/cuda/bin/nvcc"
    # NCCL is the framework's all the same, found from where Horovod's own library is.
    assert (brought / "links" / "libnccl.so").resolve().parent == brought / "site/nvidia/nccl/lib"
    cmake = Path(variables["CMAKE_TOOLCHAIN_FILE"]).read_text()
    assert r"\$ORIGIN/../../nvidia/nccl/lib;" in cmake


@pytest.mark.parametrize("asked", ["70,80", ""])
def test_compute_capability_unknown_to_nvcc_is_refused(
    brought: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("HOROVOD_BUILD_CUDA_CC_LIST", asked)
    with pytest.raises(SystemExit, match=r"80, 90"):
        toolchain.prepare(brought, brought / "cuda")


def test_package_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deb = tmp_path / "a.deb"
    listed = tmp_path / "toolkit.debs"
    deb.write_text("other")
    listed.write_text(f"# what\ntrixie non-free a=1 {'0' * 64}\n")
    monkeypatch.setattr(toolchain, "download", lambda *_: deb)
    with pytest.raises(SystemExit, match=r"a\.deb .*toolkit\.debs .*\b0000"):
        toolchain.debs(listed, tmp_path, tmp_path / "cuda")


def test_compiler_and_headers_have_one_version() -> None:
    folder = load_catalogue()["cuda"].folder
    packages = (folder / "toolkit.debs").read_text().split()
    (compiler,) = [word for word in packages if word.startswith("nvidia-cuda-toolkit=")]
    version = compiler.partition("=")[2].partition("~")[0]
    assert f"\nnvidia-cuda-nvcc-cu12=={version}\n" in (folder / "toolkit.in").read_text()

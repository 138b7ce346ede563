"""The steps that run inside a build, outside of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.images.catalogue import load_catalogue
from devtools.images.content import has_patch
from images.common import build_horovod, finish


def test_build_switches_follow_framework_and_features() -> None:
    flags = build_horovod.switches("torch", ["mpi", "nccl"])
    assert flags.keys() >= {"HOROVOD_WITH_PYTORCH", "HOROVOD_WITH_MPI", "HOROVOD_WITHOUT_GLOO"}
    assert flags["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    with pytest.raises(SystemExit, match="pytorch is none of Horovod's frameworks"):
        build_horovod.switches("pytorch", ["mpi"])
    with pytest.raises(SystemExit, match="unknown features: ddl"):
        build_horovod.switches("torch", ["ddl"])


def test_pattern_that_matches_nothing_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    assert finish.matches(tmp_path, "pack*") == [tmp_path / "package"]
    with pytest.raises(SystemExit, match="gone/include matches nothing"):
        finish.matches(tmp_path, "gone/include")
    slim = tmp_path / "slim.txt"
    slim.write_text("# why\nremove a/b\nstrip c.so # d\n")
    assert finish.slimming(slim) == [("remove", "a/b"), ("strip", "c.so")]
    slim.write_text("remove a\ndelete b\n")
    with pytest.raises(SystemExit, match=r"slim\.txt:2: 'delete b': expected remove or strip"):
        finish.slimming(slim)


def test_cuda_next_has_the_patches_of_cpu_and_one_more() -> None:
    images = load_catalogue()
    on_cpus = build_horovod.patches(images["cpu"].folder)
    on_gpus = build_horovod.patches(images["cuda-next"].folder)
    assert on_gpus == [*on_cpus, build_horovod.PATCHES / "streams-of-gpus.patch"]


def test_every_patched_horovod_goes_on_with_elastic_runs() -> None:
    patched = [image for image in load_catalogue().values() if (image.folder / "series").exists()]
    assert {image.name for image in patched} >= {"cpu", "pytorch"}
    for image in patched:
        assert has_patch(image, "elastic.patch"), image.name
        assert has_patch(image, "autotune-again.patch"), image.name

"""The steps that run inside a build, outside of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.images.catalogue import load_catalogue
from devtools.images.content import has_patch
from images.common import finish


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


def test_every_patched_horovod_goes_on_with_elastic_runs() -> None:
    patched = [image for image in load_catalogue().values() if (image.folder / "series").exists()]
    assert {image.name for image in patched} >= {"cpu", "pytorch"}
    for image in patched:
        assert has_patch(image, "elastic.patch"), image.name
        assert has_patch(image, "autotune-again.patch"), image.name

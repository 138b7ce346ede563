"""What is decided before any image is built. These need no image and no engine."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from images.base import has_suite, split_sources
from images.build import compile_flags, image_key
from images.catalogue import ROOT, Image, load_catalogue
from images.common import finish
from images.errors import ImageError
from images.lock import filled_in, stale_locks
from images.machine import apt_conf, pip_conf

GOOD = """
images:
  one:
    reference: repo:${python}
    base: debian:x
    context: ctx
    contents: [ctx/a]
    dockerfile: ctx/Dockerfile
    versions: {python: "3.11"}
"""


def catalogue(tmp_path: Path, text: str, **overrides: str) -> dict[str, Image]:
    file = tmp_path / "versions.yaml"
    file.write_text(text)
    return load_catalogue(overrides, file, tmp_path)


def test_versions_reach_the_reference_and_can_be_overridden(tmp_path: Path) -> None:
    assert catalogue(tmp_path, GOOD)["one"].reference == "repo:3.11"
    assert catalogue(tmp_path, GOOD, python="3.12")["one"].reference == "repo:3.12"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"3.11"', "3.10", "images.one.versions.python is 3.1, expected a version"),
        ('"3.11"', '"3.11; rm"', "expected a version"),
        ("base: debian:x", "", "needs either `from` or `base`"),
        ("base: debian:x", "from: two", "two is no image above it"),
        ("context: ctx", "contexts: ctx", "unknown keys: contexts"),
        ("context: ctx", "", "lacks keys: context"),
        ("images:", "image:", "no mapping `images`"),
        ("base: debian:x", "base: [", "is no YAML"),
        ("base: debian:x", "base: debian:x\n    locks: {a.in: some}", "locks.a.in is 'some'"),
    ],
)
def test_a_wrong_versions_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ImageError, match=re.escape(message)):
        catalogue(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize("name", list(load_catalogue()))
def test_the_locks_in_the_tree_hold_what_the_versions_file_says(name: str) -> None:
    image = load_catalogue()[name]
    assert stale_locks(image) == []
    first = next(iter(image.locks))
    pin = filled_in(first, image.versions).rpartition("==")[0]
    assert pin
    changed = {key: f"{version}.99" for key, version in image.versions.items()}
    assert stale_locks(dataclasses.replace(image, versions=changed)) != []


def test_the_key_follows_what_is_built_from_and_nothing_else(tmp_path: Path) -> None:
    image = catalogue(tmp_path, GOOD)["one"]
    folder = tmp_path / "ctx" / "a"
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM x")
    before = image_key(image, "base")
    (folder / "README.md").write_text("notes")
    assert image_key(image, "base") == before
    assert image_key(image, "other base") != before
    newer = dataclasses.replace(image, versions={"python": "3.12"})
    assert image_key(newer, "base") != before
    (folder / "step.py").write_text("pass")
    assert image_key(image, "base") != before
    assert len({image_key(image, "base"), before}) == 2


def test_the_flags_of_the_compiled_wheel_are_read_from_the_dockerfile() -> None:
    flags = compile_flags((ROOT / "images/cpu/Dockerfile").read_text())
    assert "HOROVOD_WITH_GLOO=1" in flags
    assert "HOROVOD_WITHOUT_PYTORCH=1" in flags
    # The version is not a flag, and so a comment or a check around it makes no other wheel.
    assert not any("VERSION" in flag for flag in flags)


def test_package_sources_of_both_forms_are_read() -> None:
    lines = split_sources("# a\ndeb x bookworm main\n\ndeb-src x bookworm main\n", one_line=True)
    assert [line for line in lines if has_suite(line, "bookworm")] == ["deb x bookworm main"]
    text = "Types: deb\n# note\nURIs: x\nSuites: bookworm bookworm-updates\nComponents: main\n\n\n"
    (paragraph,) = split_sources(text, one_line=False)
    assert has_suite(paragraph, "bookworm")
    assert not has_suite(paragraph, "trixie")
    assert "note" not in paragraph
    assert has_suite("deb http://x bookworm-security main contrib", "bookworm")
    assert not has_suite("deb http://x/tool bookworm stable", "bookworm")


def test_a_build_gets_the_mirrors_of_this_machine_and_none_of_its_paths() -> None:
    settings = (
        ":env:.cert='/my/ca.pem'\n:env:.find-links='/my/wheels'\n"
        "global.index-url='https://u:p@mirror/simple'\nglobal.trusted-host='a\\nb'\n"
    )
    text = pip_conf(settings, has_ca=True)
    assert "index-url = https://u:p@mirror/simple\n" in text
    assert "trusted-host = a\n    b\n" in text
    assert "/my/" not in text
    assert "cert = /run/secrets/ca.crt\n" in text
    assert "cert" not in pip_conf(settings, has_ca=False)

    dump = (
        'Acquire "";\nAcquire::http::Proxy "http://p:3128";\nAcquire::Check-Date "false";\n'
        'Acquire::https::SslCert "/my/cert.pem";\nAcquire::Languages "none";\nDir "/";\n'
    )
    assert apt_conf(dump, has_ca=False).splitlines() == [
        'Acquire::http::Proxy "http://p:3128";',
        'Acquire::Check-Date "false";',
    ]


def test_a_pattern_that_slims_nothing_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    assert finish.matches(tmp_path, "pack*") == [tmp_path / "package"]
    with pytest.raises(SystemExit, match="gone/include matches nothing"):
        finish.matches(tmp_path, "gone/include")

"""What a build takes from the machine it runs on: its package sources and its mirrors."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from devtools.common.errors import ImageError
from devtools.images import base
from devtools.images.base import base_of, has_suite, package_sources, split_sources
from devtools.images.build import refuse_machine
from devtools.images.catalogue import Image, load_catalogue
from devtools.images.engine import Build, Engine
from devtools.images.machine import apt_conf, pip_conf


def test_another_architecture_is_refused() -> None:
    image = load_catalogue()["cpu"]
    refuse_machine(image, "x86_64")
    with pytest.raises(ImageError, match="cpu is built for x86_64, and this machine is aarch64"):
        refuse_machine(image, "aarch64")


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


BOOKWORM = "deb http://d bookworm-security main"
NOBLE = "Types: deb\nURIs: http://u\nSuites: noble noble-updates\nComponents: main universe"


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Debian 12; returns its sources.list.d."""
    (tmp_path / "sources.list").write_text(f"{BOOKWORM}\n")
    more = tmp_path / "sources.list.d"
    more.mkdir()
    monkeypatch.setattr(base, "_SOURCES", (tmp_path / "sources.list", more))
    monkeypatch.setattr(
        platform,
        "freedesktop_os_release",
        lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"},
    )
    return more


def test_another_release_of_the_machines_distribution_comes_from_its_mirror(debian: Path) -> None:
    assert package_sources("bookworm", "debian") == [BOOKWORM]
    assert package_sources("trixie", "debian") == ["deb http://d trixie-security main"]


def test_entries_that_are_switched_off_count_where_there_are_no_others(debian: Path) -> None:
    (debian / "noble.sources").write_text(f"{NOBLE}\nEnabled: no\n")
    (debian / "copy.sources").write_text(
        "Enabled: no\nTypes: deb\nURIs: http://copy\nSuites: bookworm\nComponents: main\n"
    )
    assert package_sources("noble", "ubuntu") == [f"{NOBLE}\n"]
    assert package_sources("bookworm", "debian") == [BOOKWORM]
    assert package_sources("trixie", "debian") == ["deb http://d trixie-security main"]


class Store(Engine):
    """An engine that keeps images by name, and gets them from a registry with `registry` in it."""

    program = "store"

    def __init__(self, log: Path, registry: tuple[str, ...] = ()) -> None:
        super().__init__(log)
        self.registry = registry
        self.keys: dict[str, str] = {}

    def key(self, reference: str) -> str | None:
        return self.keys.get(reference)

    def pull(self, reference: str) -> bool:
        return reference in self.registry

    def import_root(self, tarball: Path, reference: str, key: str) -> None:
        self.keys[reference] = key

    def build(self, build: Build) -> None: ...

    def save(self, reference: str, archive: Path, name: str) -> None: ...


@pytest.fixture
def on_ubuntu(debian: Path) -> Image:
    return load_catalogue({"python": "3.12"}, target="cpu")["cpu"]


def test_a_base_is_the_public_image_where_a_registry_has_it(
    on_ubuntu: Image, tmp_path: Path
) -> None:
    public = "docker.io/library/ubuntu:noble"
    assert base_of(on_ubuntu, Store(tmp_path, (public,))) == (public, "ubuntu:noble")
    with pytest.raises(ImageError, match=r"neither an image registry nor .* of ubuntu's noble"):
        base_of(on_ubuntu, Store(tmp_path))


def test_a_base_that_was_made_is_taken_until_its_sources_change(
    on_ubuntu: Image, debian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_make", lambda suite, sources, name, key, engine: made.append(key))
    made: list[str] = []
    (debian / "noble.sources").write_text(f"{NOBLE}\n")
    store = Store(tmp_path)
    assert base_of(on_ubuntu, store) == ("hvd-base:noble", *made)
    store.keys["hvd-base:noble"] = made[0]
    assert base_of(on_ubuntu, store) == ("hvd-base:noble", made[0])
    assert len(made) == 1
    (debian / "noble.sources").write_text(f"{NOBLE} multiverse\n")
    base_of(on_ubuntu, store)
    assert len(set(made)) == 2


def test_a_release_of_another_distribution_comes_from_its_own_sources_alone(debian: Path) -> None:
    assert package_sources("noble", "ubuntu") == []
    (debian / "noble.sources").write_text(f"{NOBLE}\n")
    assert package_sources("noble", "ubuntu") == [NOBLE]
    assert package_sources("bookworm", "debian") == [BOOKWORM]


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

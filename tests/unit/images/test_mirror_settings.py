"""What a build uses of the machine: package sources and mirrors."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from images.builder.base import package_sources
from images.builder.mirror_settings import apt_conf, pip_conf

BOOKWORM = "Types: deb\nURIs: http://d\nSuites: bookworm-security\nComponents: main"
TRIXIE = BOOKWORM.replace("bookworm", "trixie")
NOBLE = "Types: deb\nURIs: http://u\nSuites: noble noble-updates\nComponents: main universe"


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder /etc/apt of a machine with Debian 12."""
    (tmp_path / "sources.list").write_text("# a\ndeb http://d bookworm-security main\n")
    (tmp_path / "sources.list.d").mkdir()
    monkeypatch.setattr(
        platform, "freedesktop_os_release", lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"}
    )
    return tmp_path


def test_package_sources_of_both_forms_are_read(debian: Path) -> None:
    (debian / "sources.list.d" / "a.list").write_text(
        "deb [arch=amd64,i386 signed-by=/k] http://x sid main contrib # note\n"
        "deb-src http://x sid main\ndeb http://x/tool sid stable\n# deb http://y sid main\n"
    )
    (debian / "sources.list.d" / "b.sources").write_text(
        "Types: deb deb-src\n# note\nURIs: z\nSuites: sid sid-updates\nComponents: main\n\n\n"
        "Types: deb-src\nURIs: z\nSuites: sid\nComponents: main\n"
    )
    assert package_sources("sid", "debian", debian) == [
        "Types: deb\nURIs: http://x\nSuites: sid\nComponents: main contrib\n"
        "Architectures: amd64 i386\nSigned-By: /k",
        "Types: deb deb-src\nURIs: z\nSuites: sid sid-updates\nComponents: main",
    ]


def test_other_release_uses_its_distributions_mirror_and_disabled_sources_last(
    debian: Path,
) -> None:
    # A release of another distribution needs its own sources.
    assert package_sources("noble", "ubuntu", debian) == []
    (debian / "sources.list.d" / "noble.sources").write_text(f"{NOBLE}\nEnabled: no\n")
    (debian / "sources.list.d" / "copy.sources").write_text(
        "Enabled: no\nTypes: deb\nURIs: http://copy\nSuites: bookworm\nComponents: main\n"
    )
    assert package_sources("noble", "ubuntu", debian) == [NOBLE]
    assert package_sources("bookworm", "debian", debian) == [BOOKWORM]
    assert package_sources("trixie", "debian", debian) == [TRIXIE]


# What `pip config list` prints on a machine with a mirror, wheels and certificates of its own.
PIP = (
    ":env:.cert='/my/ca.pem'\n:env:.find-links='/my/wheels'\n"
    "global.index-url='https://u:p@mirror/simple'\nglobal.trusted-host='a\\nb'\n"
)


def test_pip_of_a_build_gets_the_mirror_of_the_machine_and_none_of_its_paths() -> None:
    text = pip_conf(PIP, has_ca=True)
    assert "index-url = https://u:p@mirror/simple\n" in text
    assert "trusted-host = a\n    b\n" in text
    assert "/my/" not in text


def test_pip_of_a_build_has_the_certificates_that_are_mounted_if_there_are_some() -> None:
    assert "cert = /run/secrets/ca.crt\n" in pip_conf(PIP, has_ca=True)
    assert "cert" not in pip_conf(PIP, has_ca=False)


def test_apt_of_a_build_gets_the_proxy_of_the_machine_and_none_of_its_paths() -> None:
    dump = (
        'Acquire "";\nAcquire::http::Proxy "http://p:3128";\nAcquire::Check-Date "false";\n'
        'Acquire::https::SslCert "/my/cert.pem";\nAcquire::Languages "none";\nDir "/";\n'
    )
    assert apt_conf(dump, has_ca=False).splitlines() == [
        'Acquire::http::Proxy "http://p:3128";',
        'Acquire::Check-Date "false";',
    ]

"""Reading images and advisories. These need no image and no engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from devtools.common.errors import ImageError
from devtools.images import inspection
from devtools.images.audit import Update, ask_pypi, parse_updates, search_checkout
from devtools.images.build import BuiltImage
from devtools.images.engines import Engine
from tests.fakes.program import StubProgram

ADVISORY = """
id: PYSEC-2022-1
details: 'A short line.

  More of it.'
affected:
- package: {name: pillow, ecosystem: PyPI}
  ranges:
  - {type: GIT, repo: x, events: [{introduced: "0"}, {fixed: abc}]}
  - {type: ECOSYSTEM, events: [{introduced: "0"}, {fixed: 9.0.1}]}
  versions: ["8.4", "9.0.0"]
"""


def test_advisories_of_a_checkout_match_by_version(tmp_path: Path) -> None:
    folder = tmp_path / "vulns" / "pillow"
    folder.mkdir(parents=True)
    (folder / "PYSEC-2022-1.yaml").write_text(ADVISORY)
    (folder / "PYSEC-2022-2.yaml").write_text(f"{ADVISORY}withdrawn: 2022-01-01\n")
    (advisory,) = search_checkout(tmp_path, {"Pillow": "9.0.0", "numpy": "1.26.4"})
    assert (advisory.id, advisory.fixed_in, advisory.summary) == (
        *("PYSEC-2022-1", ("9.0.1",), "A short line."),
    )
    assert search_checkout(tmp_path, {"pillow": "9.0.1"}) == []
    with pytest.raises(ImageError, match="has no folder vulns"):
        search_checkout(tmp_path / "vulns", {"pillow": "9.0.1"})


def test_syft_lists_the_packages_of_each_image_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVD_CACHE", str(tmp_path / "cache"))
    programs = tmp_path / "syft-1"
    programs.mkdir()
    syft = StubProgram(programs, "syft")
    monkeypatch.setattr(inspection, "tool", lambda _: syft.path)
    # The last one was built again from the same content, but with newer packages of Debian.
    identifiers = iter(("a", "a", "b"))
    engine = SimpleNamespace(identifier=lambda _: next(identifiers), save=lambda *_: None)
    image = BuiltImage("cpu:1", "key", cast(Engine, engine))
    listed = []
    for answer in ("first", "second", "third"):
        syft.answer("scan", answer)
        listed.append(inspection.sbom(image))
    assert listed == ["first", "first", "third"]


@pytest.mark.parametrize(
    ("output", "status", "message"),
    [
        ("Found 1 known vulnerability in 1 package", 1, None),
        ("ERROR: could not connect to pypi.org", 1, "cannot be reached: ERROR: could not connect"),
    ],
)
def test_findings_of_pip_audit_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, status: int, message: str | None
) -> None:
    """pip-audit ends with 1 for both."""
    package = tmp_path / "pip_audit"
    package.mkdir()
    (package / "__init__.py").touch()
    asked = "assert '--strict' in sys.argv"
    program = f"import sys\n{asked}\nprint({output!r}, file=sys.stderr)\nsys.exit({status})\n"
    (package / "__main__.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if message is None:
        assert ask_pypi({"pillow": "9.0.0"})[0] == status
    else:
        with pytest.raises(ImageError, match=message):
            ask_pypi({"pillow": "9.0.0"})


def test_security_updates_are_marked() -> None:
    log = (
        "#7 1.2 Inst libssl3 [3.0.11-1] (3.0.17-1 Debian-Security:12/oldstable-security [amd64])\n"
        "Inst tzdata [2024a-0] (2025b-0 Debian:12.12/oldstable, Debian:12-updates [all]) []\n"
        "Inst new-one (1.0 Debian:12.12/oldstable [all])\nConf tzdata (2025b-0)\n"
    )
    assert parse_updates(log) == [
        Update("libssl3", "3.0.11-1", "3.0.17-1", "Debian-Security:12/oldstable-security "),
        Update("tzdata", "2024a-0", "2025b-0", "Debian:12.12/oldstable, Debian:12-updates "),
    ]
    assert [update.security for update in parse_updates(log)] == [True, False]

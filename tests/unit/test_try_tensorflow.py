"""`make try-tensorflow`: its output and exit status, without a build."""

from __future__ import annotations

import pytest

from devtools.images.catalogue import load_catalogue
from devtools.trials import try_tensorflow

DEFAULT = load_catalogue()["cpu"].versions["tensorflow"]


@pytest.mark.parametrize(
    ("version", "python", "overrides"),
    [
        ("2.99.0", "", {"suite": "bookworm", "openmpi": "4.1.4"}),
        ("2.99.0", "3.13", {"python": "3.13", "suite": "trixie", "openmpi": "5.0.7"}),
        # A row of versions.yaml, which says what goes together.
        (DEFAULT, "3.13", {"python": "3.13"}),
    ],
)
def test_python_selects_its_suite_and_openmpi(
    version: str, python: str, overrides: dict[str, str]
) -> None:
    expected = {"tensorflow": version, **overrides}
    assert try_tensorflow.parameters(version, "", python) == (expected, version != DEFAULT)


def test_python_of_no_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert try_tensorflow.main("2.99.0", python="3.2") == 1
    assert "python=3.2 is not among the combinations" in capsys.readouterr().err

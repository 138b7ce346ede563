"""What `down` removes of what all clusters share."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.localkube import cluster
from devtools.localkube.instance import Instance


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cluster, "CNI_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


@pytest.fixture
def one(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    """A cluster whose state, and that of all others, would be below this test's directory."""
    monkeypatch.setattr(Instance, "state", property(lambda self: tmp_path / "all" / self.name))
    return Instance("one")


def test_where_no_cluster_ever_was(one: Instance) -> None:
    cluster._remove_if_last(one)
    assert not one.state.parent.exists()


def test_the_last_one_takes_the_shared_directories_with_it(one: Instance, results: Path) -> None:
    one.state.parent.mkdir()
    results.mkdir()
    cluster._remove_if_last(one)
    assert not one.state.parent.exists()
    assert not results.exists()


def test_another_cluster_keeps_them(one: Instance, results: Path) -> None:
    Instance("two").state.mkdir(parents=True)
    results.mkdir()
    cluster._remove_if_last(one)
    assert Instance("two").state.exists()
    assert results.exists()

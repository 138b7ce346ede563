"""When `down` removes the directories that all clusters share."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.localkube import cluster
from devtools.localkube.instance import Instance


@pytest.fixture
def cni_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cluster, "CNI_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


@pytest.fixture
def one(tmp_path: Path, cni_results: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    """A cluster whose state directory, like that of all others, is in the test's directory."""
    monkeypatch.setattr(Instance, "state", property(lambda self: tmp_path / "all" / self.name))
    return Instance("one")


def test_down_creates_nothing_where_no_cluster_was(one: Instance) -> None:
    cluster._remove_shared_directories(one)
    assert not one.state.parent.exists()


def test_down_of_the_last_cluster_removes_shared_directories(
    one: Instance, cni_results: Path
) -> None:
    one.state.parent.mkdir()
    cni_results.mkdir()
    cluster._remove_shared_directories(one)
    assert not one.state.parent.exists()
    assert not cni_results.exists()


def test_down_leaves_shared_directories_to_another_cluster(
    one: Instance, cni_results: Path
) -> None:
    Instance("two").state.mkdir(parents=True)
    cni_results.mkdir()
    cluster._remove_shared_directories(one)
    assert Instance("two").state.exists()
    assert cni_results.exists()

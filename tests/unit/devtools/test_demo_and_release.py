"""The clusters of the demo, with stubs of kind and kubectl; trees and notes of a release."""

from __future__ import annotations

from pathlib import Path

import pytest

import hvdchart
from devtools.demo import clusters
from devtools.release import artifacts, tree
from devtools.release.changelog import ReleaseError, notes
from tests.fakes.program import StubProgram


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubProgram:
    """A machine with kind and Docker."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    monkeypatch.setattr(clusters, "archive", lambda name: tmp_path / f"{name}.tar")
    StubProgram(folder, "docker")
    return StubProgram(folder, "kind")


@pytest.mark.parametrize(
    ("listed", "verb"), [("", "create cluster"), ("other\nhvd\n", "export kubeconfig")]
)
def test_kind_gets_the_image_in_a_new_cluster_or_that_of_an_earlier_demo(
    kind: StubProgram, tmp_path: Path, listed: str, verb: str
) -> None:
    kind.answer("get", listed)
    cluster = clusters.start("kind")
    kubeconfig = tmp_path / "kind-hvd.kubeconfig"
    assert cluster.environment == {"KUBECONFIG": str(kubeconfig)}
    _, made, loaded = [" ".join(call.arguments) for call in kind.calls]
    assert made.startswith(f"{verb} --name hvd --kubeconfig {kubeconfig}")
    assert loaded == f"load image-archive {tmp_path}/examples.tar --name hvd"


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(clusters.DemoError, match=r"^kind is not on PATH"):
        clusters.start("kind")


def test_current_cluster_needs_an_image_with_a_tag(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubectl = StubProgram(tmp_path, "kubectl")
    kubectl.answer("config", "somewhere\n")
    monkeypatch.setattr(clusters, "tool", lambda _: kubectl.path)
    for image in ("", "digits", "registry.example:5000/digits"):
        monkeypatch.setenv("IMAGE", image)
        with pytest.raises(clusters.DemoError, match="CLUSTER=current needs IMAGE=REPOSITORY:TAG"):
            clusters.start("current")
    monkeypatch.setenv("IMAGE", "registry.example:5000/team/digits:1.0")
    cluster = clusters.start("current")
    assert cluster.values == {
        "image.repository": "registry.example:5000/team/digits",
        "image.tag": "1.0",
    }
    assert "'somewhere'" in cluster.stop_hint


CHANGELOG = """\
# Changelog

## 0.3.0 (Unreleased)

- [More](docs/spec.md), [elsewhere](https://example.com).

## 0.2.0 (2026-12-01)

- Something.
"""


def test_notes_are_those_of_one_version_with_links_to_its_tag(tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(CHANGELOG)
    assert notes("0.2.0", file=changelog) == "- Something.\n"
    text = notes("0.3.0", "https://example.com/me/it", changelog)
    assert "[More](https://example.com/me/it/blob/v0.3.0/docs/spec.md)" in text
    assert "[elsewhere](https://example.com)." in text
    with pytest.raises(ReleaseError, match=r"does not describe 9\.9\.9"):
        notes("9.9.9", file=changelog)
    assert notes(hvdchart.__version__)


def test_tree_is_released_only_if_its_files_agree_with_the_tag(tmp_path: Path) -> None:
    version = hvdchart.__version__
    (tmp_path / "charts" / "horovod").mkdir(parents=True)
    chart = tmp_path / "charts" / "horovod" / "Chart.yaml"
    chart.write_text(f"version: {version}\n")
    (tmp_path / "CITATION.cff").write_text(f"version: {version}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"## {version} (2026-12-01)\n\n- A.\n")
    assert tree.problems(f"v{version}", tmp_path) == []
    chart.write_text("version: 9.9.9\n")
    (wrong,) = tree.problems(f"v{version}", tmp_path)
    assert "charts/horovod/Chart.yaml has version 9.9.9" in wrong
    (tmp_path / "CHANGELOG.md").write_text(f"## {version} (Unreleased)\n\n- A.\n")
    assert tree.problems("v9.9.9", tmp_path)[-1].endswith("Unreleased: write the day instead")


def test_chart_gets_home_and_maintainers_from_where_it_is_published(tmp_path: Path) -> None:
    added = artifacts.published("https://example.com/me/it")
    assert added["maintainers"] == [{"name": "me", "url": "https://example.com/me"}]
    assert (artifacts.ROOT / artifacts.ICON).is_file()
    (tmp_path / "x").touch()
    with pytest.raises(ReleaseError, match="is not empty"):
        artifacts.build(tmp_path)

"""The clusters that `make demo` can use, with stubs of the programs that it runs for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.demo import clusters

PROGRAM = """\
#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
case "$*" in
"get clusters") cat "$CLUSTERS" ;;
"config current-context") echo somewhere ;;
esac
"""


class Programs:
    """Stubs in the only folder on PATH, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls_file = folder.parent / "calls"
        self.clusters = folder.parent / "clusters"
        self.calls_file.touch()
        self.clusters.touch()
        folder.mkdir()

    def add(self, name: str) -> Path:
        program = self.folder / name
        program.write_text(PROGRAM)
        program.chmod(0o755)
        return program

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    stubs = Programs(tmp_path / "bin")
    monkeypatch.setenv("CALLS", str(stubs.calls_file))
    monkeypatch.setenv("CLUSTERS", str(stubs.clusters))
    # The stubs need `cat`.
    monkeypatch.setenv("PATH", f"{stubs.folder}:/usr/bin:/bin")
    monkeypatch.setattr(clusters, "archive", lambda name: tmp_path / f"{name}.tar")
    monkeypatch.setattr(clusters, "tool", stubs.add)
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    return stubs


def test_kind_gets_a_cluster_with_the_image(programs: Programs, tmp_path: Path) -> None:
    programs.add("kind")
    programs.add("docker")
    cluster = clusters.start("kind")
    kubeconfig = tmp_path / "kind-hvd.kubeconfig"
    assert programs.calls() == [
        "kind get clusters",
        f"kind create cluster --name hvd --kubeconfig {kubeconfig} --wait 120s",
        f"kind load image-archive {tmp_path}/examples.tar --name hvd",
    ]
    assert cluster.environment == {"KUBECONFIG": str(kubeconfig)}
    assert cluster.stop_hint.startswith("kind delete cluster --name hvd ")


def test_cluster_of_an_earlier_demo_is_used_again(programs: Programs, tmp_path: Path) -> None:
    programs.add("kind")
    programs.add("docker")
    programs.clusters.write_text("other\nhvd\n")
    cluster = clusters.start("kind")
    kubeconfig = cluster.environment["KUBECONFIG"]
    assert programs.calls() == [
        "kind get clusters",
        f"kind export kubeconfig --name hvd --kubeconfig {kubeconfig}",
        f"kind load image-archive {tmp_path}/examples.tar --name hvd",
    ]


@pytest.mark.parametrize("missing", ["kind", "docker"])
def test_program_that_is_missing_is_named(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setenv("PATH", str(programs.folder))
    programs.add("docker" if missing == "kind" else "kind")
    with pytest.raises(clusters.DemoError, match=f"^{missing} is not on PATH"):
        clusters.start("kind")
    assert programs.calls() == []


def test_current_cluster_gets_the_values_of_its_image(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGE", "registry.example:5000/team/digits:1.0")
    cluster = clusters.start("current")
    assert cluster.values == {
        "image.repository": "registry.example:5000/team/digits",
        "image.tag": "1.0",
    }
    assert "'somewhere'" in cluster.stop_hint
    assert cluster.environment == {}


@pytest.mark.parametrize("image", ["", "digits", "registry.example:5000/digits"])
def test_current_cluster_needs_an_image_with_a_tag(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    monkeypatch.setenv("IMAGE", image)
    with pytest.raises(clusters.DemoError, match="CLUSTER=current needs IMAGE=REPOSITORY:TAG"):
        clusters.start("current")
    assert programs.calls() == []

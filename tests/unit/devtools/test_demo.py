"""The demo on kind, with stubs of its programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.demo import clusters
from tests.support.fakes.program import StubProgram


@pytest.mark.parametrize(
    ("listed", "verb"), [("", "create cluster"), ("other\nhvd\n", "export kubeconfig")]
)
def test_kind_gets_the_image_in_a_new_cluster_or_that_of_an_earlier_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, verb: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HVD_CACHE", str(tmp_path))
    monkeypatch.setattr(clusters, "image_archive", lambda name: tmp_path / f"{name}.tar")
    StubProgram(tmp_path, "docker")
    kind = StubProgram(tmp_path, "kind")
    kind.answer("get", listed)
    cluster = clusters.start("kind")
    kubeconfig = tmp_path / "kind-hvd.kubeconfig"
    assert cluster.environment == {"KUBECONFIG": str(kubeconfig)}
    _, started, loaded = [" ".join(call.arguments) for call in kind.calls]
    assert started.startswith(f"{verb} --name hvd --kubeconfig {kubeconfig}")
    assert loaded == f"load image-archive {tmp_path}/examples.tar --name hvd"

"""Which release of Kubernetes the local cluster's programs are built from."""

from __future__ import annotations

import pytest

from devtools.common.errors import DevtoolsError
from devtools.toolchain.tools import kubernetes_releases, module_version

KUBERNETES = ("kube", "k8s.io/kubernetes")


@pytest.mark.parametrize("release", kubernetes_releases())
def test_each_release_is_built_from_its_own_modules(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setenv("LOCALKUBE_KUBERNETES", release)
    version = module_version(*KUBERNETES)
    assert version == kubernetes_releases()[release]
    # The published modules of Kubernetes' own parts have the same numbers behind v0.
    for part in ("api", "client-go", "kubectl", "kubelet"):
        assert module_version("kube", f"k8s.io/{part}") == version.replace("v1.", "v0.", 1)


def test_default_is_the_newest_release(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = max(kubernetes_releases(), key=lambda release: int(release.split(".")[1]))
    monkeypatch.delenv("LOCALKUBE_KUBERNETES", raising=False)
    assert module_version(*KUBERNETES) == kubernetes_releases()[newest]


def test_other_programs_are_built_from_the_same_modules_whatever_the_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_helm = module_version("tools", "k8s.io/client-go")
    monkeypatch.setenv("LOCALKUBE_KUBERNETES", "1.34")
    assert module_version("tools", "k8s.io/client-go") == of_helm


def test_release_that_the_cluster_cannot_run_is_refused_with_those_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCALKUBE_KUBERNETES", "1.2")
    with pytest.raises(DevtoolsError, match=r"'1\.2'") as raised:
        module_version(*KUBERNETES)
    assert all(release in raised.value.remedy for release in kubernetes_releases())

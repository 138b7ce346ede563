"""Which requests go through a proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.proxy import proxy_manager
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.secure import write_kubeconfig

pytestmark = pytest.mark.timeout(120)
PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_proxy_of_the_kubeconfig_is_used(
    kubeconfig_file: Path, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NO_PROXY is about the proxies of the environment, as in kubectl.
    monkeypatch.setenv("NO_PROXY", "*")
    proxy = f"http://127.0.0.1:{fake_cluster.port}"
    write_kubeconfig(kubeconfig_file, {"server": "http://api.example", "proxy-url": proxy})
    assert Cluster.connect().nodes() == []
    assert fake_cluster.requests[0].headers["Host"] == "api.example"


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_used"),
    [
        ("https://api.example", "", True),
        ("http://api.example", "", False),
        ("https://api.example", "*", False),
        ("https://api.example", "api.example", False),
        ("https://api.example", " other , .EXAMPLE", False),
        ("https://api.example", "*.example", False),
        ("https://api.example", ".api.example", True),
        ("https://api.example", "*.api.example", True),
        ("https://api.example:6443", "api.example:6443", False),
        ("https://api.example:6443", "api.example:443", True),
        ("https://api.example", ".example:443", False),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", False),
        ("https://10.1.2.3:6443", "10.1.2.3:1", True),
        ("https://10.1.2.3:6443", "10.1.2.3", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "fd00::1", False),
        ("https://api.example", "ple", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
    ],
)
def test_proxy_of_the_environment(
    server: str, no_proxy: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("no_proxy", no_proxy)
    used = getattr(proxy_manager(server, ""), "proxy", None)
    assert (str(used) if used else "") == (PROXY if is_used else "")


def test_proxy_of_the_environment_needs_no_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY.removeprefix("http://"))
    assert str(getattr(proxy_manager("https://api.example", ""), "proxy", "")) == PROXY


# urllib3 warns that SOCKS needs another package.
@pytest.mark.filterwarnings("ignore:SOCKS support")
@pytest.mark.parametrize("place", ["socks5://127.0.0.1:1", "ftp://proxy.example", "http://[::"])
def test_proxy_that_cannot_be_used_is_named_without_its_password(place: str) -> None:
    proxy = place.replace("://", "://me:t0p@")
    with pytest.raises(ClusterError) as refused:
        proxy_manager("https://api.example", proxy)
    assert f" {place} " in str(refused.value)
    assert "t0p" not in str(refused.value)

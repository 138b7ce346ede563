"""Which requests go through a proxy; one of them really does, to an API server over TLS."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import cast

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from hvdchart.run.proxy import proxy_manager
from tests.fakes.secure import SecureApi, write_kubeconfig

pytestmark = pytest.mark.timeout(120)
PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Tunnel(ThreadingTCPServer):
    """A proxy that connects to what CONNECT names, and records that."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Connection)


class _Connection(BaseRequestHandler):
    def handle(self) -> None:
        line = self.request.recv(65536).decode().splitlines()[0]
        cast(Tunnel, self.server).asked.append(line)
        host, _, port = line.split()[1].partition(":")
        with socket.create_connection((host, int(port))) as far:
            self.request.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            pair = [self.request, far]
            while True:
                for side in select.select(pair, [], [])[0]:
                    content = side.recv(65536)
                    if not content:
                        return
                    pair[side is self.request].sendall(content)


@pytest.fixture
def tunnel() -> Iterator[Tunnel]:
    with Tunnel() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_proxy_of_the_kubeconfig_is_used_and_the_server_is_still_checked(
    tmp_path: Path, kubeconfig_file: Path, tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NO_PROXY is about the proxies of the environment, as in kubectl.
    monkeypatch.setenv("NO_PROXY", "*")
    with SecureApi(tmp_path).running() as api:
        proxy = f"http://127.0.0.1:{tunnel.server_address[1]}"
        write_kubeconfig(kubeconfig_file, api.cluster(**{"proxy-url": proxy}))
        assert Cluster.connect().nodes() == []
        assert [line.split()[1] for line in tunnel.asked] == [f"127.0.0.1:{api.port}"]
        elsewhere = {"proxy-url": proxy, "tls-server-name": "elsewhere"}
        write_kubeconfig(kubeconfig_file, api.cluster(**elsewhere))
        with pytest.raises(ClusterError, match=r"the API server does not answer: .*certificate"):
            Cluster.connect().nodes()


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_used"),
    [
        ("https://api.example", "", True),
        ("http://api.example", "", False),
        ("https://api.example", "other.example,, other", True),
        ("https://api.example", "*", False),
        ("https://api.example", "api.example", False),
        ("https://api.example", " other , .EXAMPLE", False),
        ("https://api.example", "*.example", False),
        ("https://api.example", "ple", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.1.2.3", False),
        ("https://10.1.2.3:6443", "11.0.0.0/8,10.1.2.30,example", True),
        ("https://10.1.2.3:6443", "*", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("https://[::1]:6443", "", False),
    ],
)
def test_proxy_of_the_environment(
    server: str, no_proxy: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("no_proxy", no_proxy)
    used = getattr(proxy_manager(server, ""), "proxy", None)
    assert (str(used) if used else "") == (PROXY if is_used else "")


# urllib3 warns that SOCKS needs another package.
@pytest.mark.filterwarnings("ignore:SOCKS support")
@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "ftp://proxy.example"])
def test_proxy_that_cannot_be_used_is_named(proxy: str) -> None:
    with pytest.raises(ClusterError, match=f"^the proxy {proxy} cannot be used: "):
        proxy_manager("https://api.example", proxy)

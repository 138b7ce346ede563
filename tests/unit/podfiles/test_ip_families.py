"""IPv6: addresses in messages and files, names of two families, the API at an IPv6 address."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import addresses
import hosts
import kube
import pytest
import ssh as pod_ssh
from settings import Host

from devtools.localkube.pki import Authority

HOST = Host("hvd-worker-0", "hvd-worker-0.hvd", 1, "hvd-worker", "r1")
IPV4, IPV6 = "10.0.0.7", "fd00::7"


def test_a_host_at_an_ipv6_address_is_probed_and_named_so_that_one_can_copy_it() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as unused:
        port = unused.getsockname()[1]
    reason = hosts.probe("::1", port, "r1")
    assert reason
    assert reason.startswith(f"[::1]:{port} does not answer")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2 hvd-r1\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert hosts.probe("::1", listener.getsockname()[1], "r1") is None
        thread.join()


@pytest.mark.parametrize(
    ("families", "expected"),
    [((IPV6, IPV4), IPV4), ((IPV4, IPV6), IPV4), ((IPV6,), IPV6), ((IPV4,), IPV4)],
)
def test_dns_gives_what_the_slices_would(
    families: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, 1, 6, "", (address, 0))
            for address in families
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert addresses.DnsAddresses().find(HOST) == expected


def test_ssh_is_given_the_address_without_brackets() -> None:
    """As `ssh -G` shows, HostName takes colons as they are and would look brackets up in DNS."""
    assert f"\n  HostName {IPV6}\n" in pod_ssh.client_config(2222, {HOST: IPV6})


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """An API server at [::1], as a pod would find it; the requests that it got."""
    authority = Authority("test")
    pair = authority.issue("server", hosts=["::1"])
    account = {"ca.crt": authority.certificate.decode(), "namespace": "team", "token": "secret"}
    for name, text in account.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "key.pem").write_bytes(pair.key)
    (tmp_path / "certificate.pem").write_bytes(pair.certificate)
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.headers['Host']} {self.path}")
            body = json.dumps({"kind": "Pod"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    with Server(("::1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(kube, "ACCOUNT", tmp_path)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_address[1]))
        yield requests
        server.shutdown()
        thread.join()


def test_the_api_at_an_ipv6_address(api_server: list[str]) -> None:
    assert kube.Api().get("core/pods/hvd-worker-0") == {"kind": "Pod"}
    (request,) = api_server
    assert request.startswith("[::1]:")
    assert request.endswith(" /api/v1/namespaces/team/pods/hvd-worker-0")


def test_the_api_is_verified_alike_on_every_python(
    api_server: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 asks more of certificates than clusters' have; who issued them is still asked."""
    usual = ssl.create_default_context

    def as_in_python_3_13(*, cafile: str) -> ssl.SSLContext:
        context = usual(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_in_python_3_13)
    assert kube.Api().get("core/pods/hvd-worker-0") == {"kind": "Pod"}
    (tmp_path / "ca.crt").write_bytes(Authority("test").certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        kube.Api().get("core/pods/hvd-worker-0")
    assert len(api_server) == 1

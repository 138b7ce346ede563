"""Every way to log in to an API server, over real TLS; and agreement with the Kubernetes client."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from hvdchart.errors import ClusterError
from hvdchart.run import kubeconfig
from hvdchart.run.cluster import Cluster
from tests.fakes.secure import Caller, SecureApi, write_kubeconfig

pytestmark = pytest.mark.timeout(120)
V1 = "client.authentication.k8s.io/v1"


def ask(api: SecureApi, file: Path, user: dict[str, Any], **cluster: Any) -> Caller:
    """Log in as this user, and return what the server saw of the request."""
    write_kubeconfig(file, api.cluster(**cluster), user)
    Cluster.connect().nodes()
    return api.callers[-1]


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def jwt(expires: float) -> str:
    """A token that says when it expires."""
    parts = ({"alg": "none"}, {"exp": int(expires)})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join((*(part.rstrip("=") for part in encoded), "signature"))


def program(folder: Path, status: str, version: str = V1) -> dict[str, Any]:
    """An entry `exec` whose program answers with this status, an expression of Python."""
    script = folder / "login.py"
    script.write_text(
        "import json, os, sys\n"
        "asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"answer = {{'apiVersion': {version!r}, 'kind': 'ExecCredential', 'status': {status}}}\n"
        "print(json.dumps(answer))\n"
    )
    return {"apiVersion": version, "command": sys.executable, "args": [str(script)]}


def test_tokens_passwords_and_nothing_become_headers(api: SecureApi, kubeconfig_file: Path) -> None:
    (kubeconfig_file.parent / "token").write_text("from-file\n")
    for user, header in (
        ({}, ""),
        ({"token": "abc"}, "Bearer abc"),
        ({"tokenFile": "token"}, "Bearer from-file"),
        ({"tokenFile": "token", "token": "abc"}, "Bearer from-file"),
        ({"username": "me", "password": "pass:word"}, f"Basic {data(b'me:pass:word')}"),
        ({"username": "me", "password": "x", "token": "abc"}, "Bearer abc"),
    ):
        assert ask(api, kubeconfig_file, user).authorization == header, user
    assert re.fullmatch(r"hvdchart/[\d.]+", api.callers[-1].headers["User-Agent"])


def test_certificates_come_from_data_or_files_beside_the_kubeconfig(
    api: SecureApi, kubeconfig_file: Path
) -> None:
    pair = api.issue("me")
    (kubeconfig_file.parent / "keys").mkdir()
    (kubeconfig_file.parent / "keys" / "me.crt").write_bytes(pair.certificate)
    (kubeconfig_file.parent / "keys" / "me.key").write_bytes(pair.key)
    files = {"client-certificate": "keys/me.crt", "client-key": "keys/me.key"}
    other = api.issue("other")
    inline = {
        "client-certificate-data": data(other.certificate), "client-key-data": data(other.key),
    }  # fmt: skip
    assert ask(api, kubeconfig_file, files).name == "me"
    assert ask(api, kubeconfig_file, inline).name == "other"
    assert ask(api, kubeconfig_file, {**files, **inline}).name == "other", "as in kubectl"


def test_encrypted_key_is_refused_and_asks_nobody(api: SecureApi, kubeconfig_file: Path) -> None:
    pair = api.issue("me")
    key = serialization.load_pem_private_key(pair.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    user = {"client-certificate-data": data(pair.certificate), "client-key-data": data(key)}
    with pytest.raises(ClusterError, match=r"the kubeconfig's certificates .* cannot be used"):
        ask(api, kubeconfig_file, user)


def test_person_can_act_as_another(api: SecureApi, kubeconfig_file: Path) -> None:
    user = {"token": "abc", "as": "you", "as-uid": "7", "as-groups": ["one", "two"]}
    caller = ask(api, kubeconfig_file, user)
    assert (caller.headers["Impersonate-User"], caller.headers["Impersonate-Uid"]) == ("you", "7")
    assert caller.groups == ("one", "two")


def test_pod_uses_its_service_account_and_reads_a_new_token(
    api: SecureApi, kubeconfig_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    with pytest.raises(
        ClusterError, match=r"the pod's service account cannot be used: .*namespace"
    ):
        Cluster.connect()
    (tmp_path / "namespace").write_text("mine\n")
    (tmp_path / "ca.crt").write_bytes(api.authority.certificate)
    (tmp_path / "token").write_text("old\n")
    cluster = Cluster.connect()
    assert cluster.namespace == "mine"
    (tmp_path / "token").write_text("new\n")
    api.accepted = {"Bearer new"}
    cluster.nodes()
    assert Cluster.connect(namespace="other").namespace == "other"


@pytest.mark.slow
def test_server_is_checked_unless_the_kubeconfig_says_otherwise(
    api: SecureApi, kubeconfig_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = {"certificate-authority-data": ""}
    with pytest.raises(ClusterError, match=r"does not answer: .*certificate verify failed"):
        ask(api, kubeconfig_file, {}, **unknown)
    with pytest.warns(Warning, match="Unverified HTTPS request"):
        ask(api, kubeconfig_file, {}, **unknown, **{"insecure-skip-tls-verify": True})
    with pytest.raises(ClusterError, match=r"Hostname mismatch|doesn't match|not valid for"):
        ask(api, kubeconfig_file, {}, **{"tls-server-name": "elsewhere"})
    ask(api, kubeconfig_file, {}, **{"tls-server-name": "kubernetes"})
    authorities = kubeconfig_file.parent / "ca.crt"
    authorities.write_bytes(api.authority.certificate)
    ask(api, kubeconfig_file, {}, **unknown, **{"certificate-authority": "ca.crt"})
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    ask(api, kubeconfig_file, {}, **unknown)
    assert len(api.callers) == 4


def test_first_file_that_has_an_entry_decides(
    api: SecureApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    context = {"name": "own", "context": {"cluster": "c", "user": "v", "namespace": "n"}}
    first.write_text(yaml.safe_dump({"contexts": [context], "users": None}))
    users = [{"name": "v", "user": {"token": "second"}}]
    again = [{"name": "own", "context": {"cluster": "none"}}]
    changes: dict[str, Any] = {"contexts": again, "users": users, "current-context": "own"}
    write_kubeconfig(second, api.cluster(), **changes)
    write_kubeconfig(third, {"server": "https://none.example"})
    (tmp_path / "empty").touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none::{tmp_path}/empty:{first}:{second}:{third}")
    cluster = Cluster.connect()
    assert cluster.namespace == "n"
    cluster.nodes()
    assert api.callers[-1].authorization == "Bearer second"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"current-context": None}, "it has no current-context"),
        ({"current-context": 1}, "current-context is 1, which is not text"),
        ({"clusters": []}, "the context names the cluster 'c', which is not in the list clusters"),
        ({"users": []}, "the context names the user 'u', which is not in the list users"),
        ({"users": [{"user": {}}]}, "users in .* has an entry that is not a name with a user"),
        ({"users": [{"name": "u", "user": {"token": 12}}]}, "token is 12, which is not text"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "host:6443"}}]},
            "the cluster's server is 'host:6443', which is not a URL",
        ),
    ],
)
def test_wrong_entry_is_named(
    api: SecureApi, kubeconfig_file: Path, change: dict[str, Any], message: str
) -> None:
    write_kubeconfig(kubeconfig_file, api.cluster(), {}, **change)
    with pytest.raises(ClusterError, match=f"kubeconfig .* cannot be used: {message}"):
        Cluster.connect()


def test_provider_of_tokens_is_that_of_the_kubernetes_client(
    api: SecureApi, kubeconfig_file: Path
) -> None:
    token = jwt(time.time() + 3600)
    valid = {"name": "oidc", "config": {"id-token": token}}
    assert ask(api, kubeconfig_file, {"auth-provider": valid}).authorization == f"Bearer {token}"
    expired = {
        "name": "oidc",
        "config": {"id-token": jwt(1), "idp-issuer-url": "http://127.0.0.1:1", "client-id": "a"},
    }
    with pytest.raises(ClusterError, match=r"the user's auth-provider fails: .*Connection refused"):
        ask(api, kubeconfig_file, {"auth-provider": expired})
    with pytest.raises(ClusterError, match="the user's auth-provider gives no token; log in again"):
        ask(api, kubeconfig_file, {"auth-provider": {"name": "none"}})


@pytest.mark.slow
def test_same_credentials_as_the_kubernetes_client(api: SecureApi, kubeconfig_file: Path) -> None:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import kube_config

    client: Any = kube_config
    pair = api.issue("me")
    (kubeconfig_file.parent / "token").write_text("from-file")
    certificate = {
        "client-certificate-data": data(pair.certificate), "client-key-data": data(pair.key),
    }  # fmt: skip
    users: list[dict[str, Any]] = [
        {"token": "abc"},
        {"tokenFile": "token"},
        {"username": "a", "password": "b"},
        {"exec": program(kubeconfig_file.parent, "{'token': 't'}")},
        certificate,
        {**certificate, "token": "abc"},
    ]
    for user in users:
        write_kubeconfig(kubeconfig_file, api.cluster(**{"tls-server-name": "kubernetes"}), user)
        theirs: Any = Configuration()
        client.load_kube_config(str(kubeconfig_file), client_configuration=theirs)
        ours = kubeconfig.find_connection()
        credentials = ours.log_in()
        assert dict(credentials.headers).get("Authorization") == theirs.api_key.get("BearerToken")
        assert (ours.server, ours.server_name) == (theirs.host, theirs.tls_server_name)
        assert ours.authorities == Path(theirs.ssl_ca_cert).read_text()
        for content, file in (
            (credentials.certificate, theirs.cert_file), (credentials.key, theirs.key_file),
        ):  # fmt: skip
            assert content == (Path(file).read_bytes() if file else b"")

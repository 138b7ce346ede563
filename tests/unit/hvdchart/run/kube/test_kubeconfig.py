"""Every way to log in to an API server, over real TLS, and kubeconfigs that cannot be used."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvdchart.errors import ClusterError
from hvdchart.run.kube import kubeconfig
from hvdchart.run.kube.cluster import Cluster
from tests.support.fakes.secure import Caller, SecureApi, write_kubeconfig
from tests.unit.hvdchart.command import Command

pytestmark = pytest.mark.timeout(120)
V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[SecureApi]:
    folder = tmp_path / "server"
    folder.mkdir()
    with SecureApi(folder).running() as server:
        yield server


def ask(api: SecureApi, file: Path, user: dict[str, Any], **cluster: Any) -> Caller:
    """Log in as this user, and return what the server saw of the request."""
    write_kubeconfig(file, api.cluster(**cluster), user)
    Cluster.connect().nodes()
    return api.callers[-1]


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


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


@pytest.fixture
def of_files(api: SecureApi, kubeconfig_file: Path) -> dict[str, str]:
    """A user whose certificate is in files beside the kubeconfig, by the name `me`."""
    pair = api.issue("me")
    folder = kubeconfig_file.parent / "keys"
    folder.mkdir()
    (folder / "me.crt").write_bytes(pair.certificate)
    (folder / "me.key").write_bytes(pair.key)
    return {"client-certificate": "keys/me.crt", "client-key": "keys/me.key"}


@pytest.fixture
def of_data(api: SecureApi) -> dict[str, str]:
    """A user whose certificate is in the kubeconfig, by the name `other`."""
    pair = api.issue("other")
    return {"client-certificate-data": data(pair.certificate), "client-key-data": data(pair.key)}


@pytest.fixture
def account(
    api: SecureApi, kubeconfig_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """The empty folder of the service account of a pod that has no kubeconfig."""
    folder = tmp_path / "account"
    folder.mkdir()
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    return folder


@pytest.fixture
def complete_account(api: SecureApi, account: Path) -> Path:
    """The folder of a service account, with its files."""
    (account / "namespace").write_text("mine\n")
    (account / "ca.crt").write_bytes(api.authority.certificate)
    (account / "token").write_text("old\n")
    return account


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({}, ""),
        ({"token": "abc"}, "Bearer abc"),
        ({"tokenFile": "token", "token": "abc"}, "Bearer from-file"),
        ({"username": "me", "password": "pass:word"}, f"Basic {data(b'me:pass:word')}"),
        ({"username": "me", "password": "x", "token": "abc"}, "Bearer abc"),
    ],
    ids=["nothing", "token", "file", "password", "token and password"],
)
def test_tokens_and_passwords_become_headers(
    api: SecureApi, kubeconfig_file: Path, user: dict[str, Any], header: str
) -> None:
    (kubeconfig_file.parent / "token").write_text("from-file\n")
    assert ask(api, kubeconfig_file, user).authorization == header


def test_names_of_somebody_else_become_headers(api: SecureApi, kubeconfig_file: Path) -> None:
    other = {"token": "abc", "as": "you", "as-uid": "7", "as-groups": ["one", "two"]}
    extra = {"example.com/scopes": ["view"]}
    caller = ask(api, kubeconfig_file, {**other, "as-user-extra": extra})
    assert (caller.headers["Impersonate-User"], caller.headers["Impersonate-Uid"]) == ("you", "7")
    assert caller.groups == ("one", "two")
    assert caller.headers["Impersonate-Extra-example.com%2Fscopes"] == "view"


def test_requests_name_the_program_and_its_version(api: SecureApi, kubeconfig_file: Path) -> None:
    agent = ask(api, kubeconfig_file, {}).headers["User-Agent"]
    assert re.fullmatch(r"hvdchart/[\d.]+", agent)


def test_keys_may_be_null(api: SecureApi, kubeconfig_file: Path) -> None:
    entry = {"token": "abc", "exec": None, "tokenFile": None, "auth-provider": None}
    assert ask(api, kubeconfig_file, entry).authorization == "Bearer abc"


def test_variable_of_a_program_may_have_no_value(
    api: SecureApi, kubeconfig_file: Path, tmp_path: Path
) -> None:
    entry = program(tmp_path, "{'token': 'of' + os.environ['A']}")
    sent = ask(api, kubeconfig_file, {"exec": {**entry, "env": [{"name": "A"}]}})
    assert sent.authorization == "Bearer of"


def test_certificate_comes_from_files_beside_the_kubeconfig(
    api: SecureApi, kubeconfig_file: Path, of_files: dict[str, str]
) -> None:
    assert ask(api, kubeconfig_file, of_files).name == "me"


def test_certificate_in_the_kubeconfig_is_preferred_to_files(
    api: SecureApi, kubeconfig_file: Path, of_files: dict[str, str], of_data: dict[str, str]
) -> None:
    """As kubectl does it."""
    assert ask(api, kubeconfig_file, {**of_files, **of_data}).name == "other"


def test_without_a_kubeconfig_there_is_no_cluster(kubeconfig_file: Path) -> None:
    with pytest.raises(ClusterError, match=r"\bKUBECONFIG\b"):
        Cluster.connect()


def test_pod_with_an_incomplete_service_account_says_what_is_missing(account: Path) -> None:
    with pytest.raises(ClusterError, match=str(account / "namespace")):
        Cluster.connect()


def test_pod_uses_the_namespace_of_its_service_account_unless_set(
    complete_account: Path,
) -> None:
    assert Cluster.connect().namespace == "mine"
    assert Cluster.connect(namespace="other").namespace == "other"


def test_pod_reads_a_new_token_of_its_service_account(
    api: SecureApi, complete_account: Path
) -> None:
    cluster = Cluster.connect()
    (complete_account / "token").write_text("new\n")
    api.accepted = {"Bearer new"}
    cluster.nodes()
    assert api.callers[-1].authorization == "Bearer new"


UNKNOWN = {"certificate-authority-data": ""}


@pytest.mark.slow
def test_server_of_an_unknown_authority_is_refused(api: SecureApi, kubeconfig_file: Path) -> None:
    with pytest.raises(ClusterError, match=r"certificate verify failed"):
        ask(api, kubeconfig_file, {}, **UNKNOWN)
    assert api.callers == []


def test_server_is_not_checked_where_the_kubeconfig_says_so(
    api: SecureApi, kubeconfig_file: Path
) -> None:
    with pytest.warns(Warning, match="Unverified HTTPS request"):
        ask(api, kubeconfig_file, {}, **UNKNOWN, **{"insecure-skip-tls-verify": True})


@pytest.mark.slow
def test_server_of_another_name_is_refused(api: SecureApi, kubeconfig_file: Path) -> None:
    with pytest.raises(ClusterError, match=r"Hostname mismatch|doesn't match|not valid for"):
        ask(api, kubeconfig_file, {}, **{"tls-server-name": "elsewhere"})
    assert api.callers == []


def test_server_may_have_another_name_that_the_kubeconfig_gives(
    api: SecureApi, kubeconfig_file: Path
) -> None:
    ask(api, kubeconfig_file, {}, **{"tls-server-name": "kubernetes"})


def test_authority_of_the_server_comes_from_a_file(api: SecureApi, kubeconfig_file: Path) -> None:
    (kubeconfig_file.parent / "ca.crt").write_bytes(api.authority.certificate)
    ask(api, kubeconfig_file, {}, **UNKNOWN, **{"certificate-authority": "ca.crt"})


def test_authority_of_the_server_may_be_one_of_this_machine(
    api: SecureApi, kubeconfig_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = kubeconfig_file.parent / "ca.crt"
    authorities.write_bytes(api.authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    ask(api, kubeconfig_file, {}, **UNKNOWN)


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


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_program_gives_a_token(api: SecureApi, kubeconfig_file: Path, version: str) -> None:
    answer = "[os.environ['WHO'], *sys.argv[1:], *sorted(asked['spec'])]"
    entry = program(
        kubeconfig_file.parent,
        f"{{'token': '/'.join({answer}) + asked['spec']['cluster']['server']}}",
        f"client.authentication.k8s.io/{version}",
    )
    entry["args"].append("argument")
    entry |= {"env": [{"name": "WHO", "value": "me"}], "provideClusterInfo": True}
    sent = ask(api, kubeconfig_file, {"exec": entry}).authorization
    assert sent == f"Bearer me/argument/cluster/interactive{api.url}"


@pytest.mark.slow
def test_program_gives_a_certificate(api: SecureApi, kubeconfig_file: Path) -> None:
    pair = api.issue("me")
    status = {
        "clientCertificateData": pair.certificate.decode(),
        "clientKeyData": pair.key.decode(),
    }
    entry = program(kubeconfig_file.parent, repr(status))
    assert ask(api, kubeconfig_file, {"exec": entry}).name == "me"


@pytest.mark.slow
def test_token_of_a_program_is_used_beside_a_certificate(
    api: SecureApi, kubeconfig_file: Path, of_data: dict[str, str]
) -> None:
    entry = program(kubeconfig_file.parent, "{'token': 'abc'}")
    caller = ask(api, kubeconfig_file, {"exec": entry, **of_data})
    assert (caller.name, caller.authorization) == ("other", "Bearer abc")


@pytest.mark.slow
def test_expired_token_is_asked_for_again_and_the_new_one_kept(
    api: SecureApi, kubeconfig_file: Path
) -> None:
    count = kubeconfig_file.parent / "count"
    entry = program(
        kubeconfig_file.parent,
        f"(open({str(count)!r}, 'a').write('x'), {{'token': open({str(count)!r}).read()}})[1]",
    )
    write_kubeconfig(kubeconfig_file, api.cluster(), {"exec": entry})
    cluster = Cluster.connect()
    api.accepted = {"Bearer xx"}
    assert cluster.nodes() == []
    cluster.nodes()
    sent = [caller.authorization for caller in api.callers]
    assert sent == ["Bearer x", "Bearer xx", "Bearer xx"]


def test_token_that_is_not_accepted_is_sent_once(api: SecureApi, kubeconfig_file: Path) -> None:
    """There is no other one to be had."""
    api.accepted = set()
    with pytest.raises(ClusterError, match="credentials"):
        ask(api, kubeconfig_file, {"token": "abc"})
    assert len(api.callers) == 1


def echo(answer: object) -> dict[str, Any]:
    return {"apiVersion": V1, "command": "echo", "args": [json.dumps(answer)]}


def user(**content: Any) -> dict[str, Any]:
    return {"users": [{"name": "u", "user": content}]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"current-context": None}, "current-context"),
        ({"clusters": []}, "cluster 'c'"),
        ({"users": []}, "user 'u'"),
        ({"clusters": [{"name": "c", "cluster": {"server": "host"}}]}, "host"),
        (user(tokenFile="/none"), "/none"),
        (user(**{"client-key-data": "YW!J"}), "client-key-data"),
        (user(**{"auth-provider": {"name": "oidc"}}), "auth-provider"),
        (
            user(exec={"command": "none-x", "apiVersion": V1, "installHint": "get it"}),
            "'none-x'.*: get it",
        ),
        (
            user(exec={"command": "sh", "apiVersion": V1, "args": ["-c", "echo no >&2; exit 3"]}),
            r"\bsh\b.* 3: no",
        ),
        (user(exec=echo("text")), "echo .*ExecCredential"),
        (user(exec=echo({"apiVersion": "v9", "status": {"token": 1}})), "echo .*v9"),
        (user(exec=echo({"apiVersion": V1, "status": {}})), "echo .*token"),
    ],
)
def test_wrong_entry_is_named(
    api: SecureApi, kubeconfig_file: Path, change: dict[str, Any], named: str
) -> None:
    write_kubeconfig(kubeconfig_file, api.cluster(), {}, **change)
    with pytest.raises(ClusterError, match=f"{re.escape(str(kubeconfig_file))} .*{named}"):
        Cluster.connect()


@pytest.mark.parametrize(
    ("kind", "content", "key"),
    [
        ("user", {"exec": {"args": ["a", 1]}}, "exec.args[1]"),
        ("user", {"exec": {"env": [None]}}, "exec.env[0]"),
        ("user", {"exec": "login"}, "exec"),
        ("user", {"as-groups": "one"}, "as-groups"),
        ("user", {"as-user-extra": {"scopes": "view"}}, "as-user-extra.scopes"),
        ("cluster", {"extensions": ["a"]}, "extensions[0]"),
        ("cluster", {"insecure-skip-tls-verify": "true"}, "insecure-skip-tls-verify"),
    ],
)
def test_key_of_a_wrong_type_is_named_with_its_file(
    kubeconfig_file: Path, kind: str, content: dict[str, Any], key: str
) -> None:
    cluster = {"server": "https://127.0.0.1:1"}
    changed = {f"{kind}s": [{"name": kind[0], kind: {**cluster, **content}}]}
    write_kubeconfig(kubeconfig_file, cluster, {}, **changed)
    with pytest.raises(ClusterError) as refused:
        Cluster.connect()
    assert f" {kind}s[0].{kind}.{key} in {kubeconfig_file} is no " in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        b"- a\n- list\n",
        b"\xff\xfe\x00\x01binary",
        b"just text",
        b"",
        b"{unclosed: [",
        b"contexts: {}\nclusters: 1\nusers: null\ncurrent-context: a\n",
        b"contexts: [{name: a}]\nclusters: []\nusers: []\ncurrent-context: a\n",
    ],
)
def test_file_that_is_no_kubeconfig_is_named_in_one_line(
    kubeconfig_file: Path, hvdchart: Command, content: bytes
) -> None:
    kubeconfig_file.write_bytes(content)
    done = hvdchart("status", "run")
    assert (done.code, done.output, len(done.errors.splitlines())) == (7, "", 1), done.errors
    assert f" {kubeconfig_file} " in done.errors
    assert " KUBECONFIG " in done.errors


@pytest.mark.parametrize(
    "spoilt",
    [
        b"users: [{name: u, user: {username: me, password: 31337}}]",
        b"users: [{name: u, user: {token: 31337}}]",
        b"users: [{name: u, user: {token: 31337, a: ]}}]",
        b"clusters: [{name: c, cluster: {server: 'ftp://me:31337@api.example'}}]",
    ],
)
@pytest.mark.promise("messages have no password")
def test_messages_have_no_password(kubeconfig_file: Path, spoilt: bytes) -> None:
    """Logs of CI jobs keep them."""
    write_kubeconfig(kubeconfig_file, {"server": "https://127.0.0.1:1"}, {})
    document = yaml.safe_load(kubeconfig_file.read_text())
    key = spoilt.partition(b":")[0].decode()
    text = yaml.safe_dump({name: value for name, value in document.items() if name != key})
    kubeconfig_file.write_bytes(text.encode() + spoilt)
    with pytest.raises(ClusterError) as refused:
        Cluster.connect().nodes()
    assert "31337" not in str(refused.value)

"""Kubeconfigs that cannot be used end in one message with the file and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from hvdchart.run.kubeconfig import Connection, Credentials
from tests.fakes.cluster import FakeCluster, write_kubeconfig
from tests.fakes.fixtures import Command

pytestmark = pytest.mark.timeout(120)


def changed(kubeconfig: Path, **user: Any) -> str:
    """The text of a kubeconfig whose user has these credentials."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = user
    return yaml.safe_dump(document)


@pytest.mark.parametrize(
    "content",
    [
        b"- a\n- list\n",
        b"\xff\xfe\x00\x01binary",
        b"just text",
        b"",
        b"{unclosed: [",
        b"apiVersion: v1\nkind: Config\n",
        b"contexts: {}\nclusters: 1\nusers: null\ncurrent-context: a\n",
        b"contexts: [{name: a}]\nclusters: []\nusers: []\ncurrent-context: a\n",
        b"contexts: [{name: a, context: {cluster: b, user: c}}]\ncurrent-context: a\n"
        b"clusters: [{name: b, cluster: {}}]\nusers: [{name: c, user: {}}]\n",
    ],
    ids=[
        *("list", "binary", "text", "empty", "broken", "no contexts", "other types"),
        *("context without content", "cluster without server"),
    ],
)
def test_file_that_is_no_kubeconfig_is_named(
    kubeconfig_file: Path, hvdchart: Command, content: bytes
) -> None:
    kubeconfig_file.write_bytes(content)
    done = hvdchart("status", "run")
    assert done.code == 7, done.errors
    assert done.output == ""
    assert len(done.errors.splitlines()) == 1, "one line, no traceback"
    assert f"the kubeconfig {kubeconfig_file} cannot be used: " in done.errors
    assert done.errors.endswith("correct it, or set KUBECONFIG to another file\n")


def test_folder_is_no_kubeconfig(kubeconfig_file: Path) -> None:
    kubeconfig_file.mkdir()
    with pytest.raises(ClusterError, match=f"kubeconfig {kubeconfig_file} cannot be used: "):
        Cluster.connect()


@pytest.mark.parametrize(
    "user",
    [
        {"client-certificate-data": "%%%", "client-key-data": "%%%"},
        {"client-certificate-data": "bm8gY2VydA==", "client-key-data": "bm8ga2V5"},
        {"client-certificate": "/none.crt", "client-key": "/none.key"},
        {"tokenFile": "/none"},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-program"}},
    ],
    ids=["broken base64", "no certificate", "missing files", "missing token", "missing program"],
)
def test_unusable_credentials_are_one_message(
    kubeconfig_file: Path, hvdchart: Command, fake_cluster: FakeCluster, user: dict[str, Any]
) -> None:
    content = changed(kubeconfig_file, **user).replace("http://", "https://")
    kubeconfig_file.write_text(content)
    done = hvdchart("status", "run")
    assert (done.code, done.output) == (7, ""), done.errors
    assert "Traceback" not in done.errors
    assert done.errors.startswith("hvdchart: ")


def test_server_that_is_away_is_one_message(kubeconfig_file: Path, hvdchart: Command) -> None:
    write_kubeconfig(kubeconfig_file, "http://127.0.0.1:1")
    done = hvdchart("status", "run")
    assert done.code == 7
    assert "cannot list jobs in namespace team: the API server does not answer" in done.errors


def test_certificate_with_other_signs_than_base64_is_named(
    kubeconfig_file: Path, fake_cluster: FakeCluster
) -> None:
    wrong = changed(kubeconfig_file, **{"client-certificate-data": "YW!Jj"})
    kubeconfig_file.write_text(wrong.replace("http://", "https://"))
    with pytest.raises(ClusterError, match="client-certificate-data is not base64: "):
        Cluster.connect()


def test_servers_are_verified_unless_the_kubeconfig_says_otherwise() -> None:
    assert Connection("https://a", lambda: Credentials(()), "team", "").is_verified

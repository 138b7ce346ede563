"""Credentials from programs that a kubeconfig names, and their renewal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from hvdchart.run.exec_credential import run_program
from tests.fakes.secure import SecureApi, write_kubeconfig
from tests.unit.hvdchart.run.test_credentials import V1, ask, data, program

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_program_gives_a_token(api: SecureApi, kubeconfig_file: Path, version: str) -> None:
    entry = program(
        kubeconfig_file.parent,
        "{'token': '/'.join([os.environ['WHO'], *sys.argv[1:], *sorted(asked['spec'])])}",
        f"client.authentication.k8s.io/{version}",
    )
    entry["args"].append("argument")
    entry["env"] = [{"name": "WHO", "value": "me"}]
    told = ask(api, kubeconfig_file, {"exec": entry}).authorization
    assert told == "Bearer me/argument/interactive"


def test_program_is_told_the_cluster_when_it_asks(api: SecureApi, kubeconfig_file: Path) -> None:
    entry = program(kubeconfig_file.parent, "{'token': json.dumps(asked['spec']['cluster'])}")
    entry["provideClusterInfo"] = True
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    caller = ask(api, kubeconfig_file, {"exec": entry}, extensions=[extension])
    assert json.loads(caller.authorization.removeprefix("Bearer ")) == {
        **api.cluster(), "config": {"audience": "a"},
    }  # fmt: skip


@pytest.mark.slow
def test_program_gives_a_certificate(api: SecureApi, kubeconfig_file: Path) -> None:
    pair = api.issue("me")
    status = {
        "clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode(),
    }  # fmt: skip
    entry = program(kubeconfig_file.parent, repr(status))
    assert ask(api, kubeconfig_file, {"exec": entry}).name == "me"
    own = {"client-certificate-data": status["clientCertificateData"]}
    own["client-key-data"] = status["clientKeyData"]
    own = {key: data(content.encode()) for key, content in own.items()}
    entry = program(kubeconfig_file.parent, "{'token': 'abc'}")
    caller = ask(api, kubeconfig_file, {"exec": entry, **own})
    assert (caller.name, caller.authorization) == ("me", "Bearer abc"), "both are used"


def test_program_beside_the_kubeconfig(api: SecureApi, kubeconfig_file: Path) -> None:
    script = kubeconfig_file.parent / "login"
    answer = {"apiVersion": V1, "status": {"token": "abc"}}
    script.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    script.chmod(0o755)
    entry = {"apiVersion": V1, "command": "./login"}
    assert ask(api, kubeconfig_file, {"exec": entry}).authorization == "Bearer abc"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([], "the user's exec has no command"),
        ({"command": "x", "apiVersion": "v1"}, "exec has the apiVersion 'v1', not client.auth"),
        ({"command": "none-x", "installHint": "get it"}, "no program 'none-x' for cred.*: get it"),
        ({"command": "sh", "args": ["-c", "echo no >&2; exit 3"]}, "sh ended with exit code 3: no"),
        ({"command": "echo", "args": ["text"]}, "echo printed no ExecCredential with a status"),
        ({"command": "echo", "args": ["[]"]}, "echo printed no ExecCredential with a status"),
        (
            {"command": "echo", "args": [json.dumps({"apiVersion": "v9", "status": {"token": 1}})]},
            "echo answered with v9, and the kubeconfig has client.authentication.k8s.io/v1;",
        ),
        (
            {"command": "echo", "args": [json.dumps({"apiVersion": V1, "status": {}})]},
            "echo printed neither a token nor a certificate",
        ),
    ],
)
def test_program_that_fails_is_named(
    api: SecureApi, kubeconfig_file: Path, entry: Any, message: str
) -> None:
    if isinstance(entry, dict):
        entry = {"apiVersion": V1, **entry}
    with pytest.raises(ClusterError, match=f"kubeconfig .* cannot be used: .*{message}"):
        ask(api, kubeconfig_file, {"exec": entry})


@pytest.mark.slow
def test_expired_token_is_asked_for_again(api: SecureApi, kubeconfig_file: Path) -> None:
    count = kubeconfig_file.parent / "count"
    entry = program(
        kubeconfig_file.parent,
        f"(open({str(count)!r}, 'a').write('x'), {{'token': open({str(count)!r}).read()}})[1]",
    )
    write_kubeconfig(kubeconfig_file, api.cluster(), {"exec": entry})
    cluster = Cluster.connect()
    api.accepted = {"Bearer xx"}
    assert cluster.nodes() == []
    assert [caller.authorization for caller in api.callers] == ["Bearer x", "Bearer xx"]
    cluster.nodes()
    assert len(api.callers) == 3, "the new one is kept"


def test_refused_token_that_stays_the_same_is_sent_once(
    api: SecureApi, kubeconfig_file: Path
) -> None:
    api.accepted = set()
    with pytest.raises(ClusterError, match="does not accept your credentials"):
        ask(api, kubeconfig_file, {"token": "abc"})
    assert len(api.callers) == 1


@pytest.mark.parametrize(
    ("is_terminal", "mode", "is_interactive"),
    [(True, "IfAvailable", True), (True, "Never", False), (False, "IfAvailable", False)],
)
def test_program_may_ask_a_person_at_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool, mode: str,
    is_interactive: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_terminal)
    entry = {**program(tmp_path, "{'token': str(asked['spec']['interactive'])}")}
    answer = run_program({**entry, "interactiveMode": mode}, tmp_path, {})
    assert answer == {"token": str(is_interactive)}

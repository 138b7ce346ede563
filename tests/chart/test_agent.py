"""The keys with which master and workers know each other: who has them, and what they are good for.

docs/threat-model.md promises it.
"""

from __future__ import annotations

import base64
import datetime as dt
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.chart.cases import EVERY_POD
from tests.chart.render import (
    Manifest,
    Values,
    containers_of,
    main_container,
    of_kind,
    one,
    pod_spec,
    pod_specs,
    render,
    render_uncached,
    run_settings,
    variables,
)

# Without an account the master cannot make keys, so that Helm always does.
BY_HELM: Values = {"serviceAccount": {"create": False}}
BROUGHT: Values = {"agent": {"masterSecret": "of-master", "workerSecret": "of-workers"}}
SIDES = ("master", "worker")
PRIVATE_KEY = "-----BEGIN EC PRIVATE KEY-----"
OWN = [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}]
OF_PEER = [{"key": "ca.crt", "path": "peer-ca.crt"}]


def secrets(manifests: list[Manifest]) -> dict[str, dict[str, bytes]]:
    """The content of each Secret by its name."""
    return {
        item["metadata"]["name"]: {
            key: base64.b64decode(value) for key, value in item.get("data", {}).items()
        }
        for item in of_kind(manifests, "Secret")
    }


def key_sources(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """What the volume with the keys of a workload's pods has: the Secrets and their keys."""
    volumes = pod_spec(one(manifests, kind))["volumes"]
    (volume,) = (volume for volume in volumes if volume["name"] == "keys")
    return [source["secret"] for source in volume["projected"]["sources"]]


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, bytes]]:
    """The Secrets of a release whose keys Helm has made."""
    return secrets(render(BY_HELM))


def certificates(made: dict[str, dict[str, bytes]], side: str) -> list[x509.Certificate]:
    """The certificate of a side and that of its authority."""
    data = made[f"hvd-agent-{side}"]
    return [x509.load_pem_x509_certificate(data[key]) for key in ("tls.crt", "ca.crt")]


def test_master_and_workers_have_a_secret_each(made: dict[str, dict[str, bytes]]) -> None:
    assert {name: set(data) for name, data in made.items()} == {
        "hvd-agent-master": {"tls.crt", "tls.key", "ca.crt"},
        "hvd-agent-worker": {"tls.crt", "tls.key", "ca.crt"},
    }


@pytest.mark.parametrize("side", SIDES)
def test_certificate_names_the_release_alone(side: str, made: dict[str, dict[str, bytes]]) -> None:
    certificate, _ = certificates(made, side)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.DNSName(f"{side}-1.hvd.team.horovod.internal")]
    (subject,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert subject.value == f"horovod-{side}"


@pytest.mark.parametrize("side", SIDES)
def test_certificates_are_of_the_curve_p_256_and_valid_for_ten_years(
    side: str, made: dict[str, dict[str, bytes]]
) -> None:
    for certificate in certificates(made, side):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert isinstance(key.curve, ec.SECP256R1)
        valid = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert valid == dt.timedelta(days=3650)


@pytest.mark.parametrize(("side", "other"), [SIDES, SIDES[::-1]])
def test_each_side_has_an_authority_of_its_own(
    side: str, other: str, made: dict[str, dict[str, bytes]]
) -> None:
    leaf, authority = certificates(made, side)
    _, of_other = certificates(made, other)
    leaf.verify_directly_issued_by(authority)
    assert authority.public_key() != of_other.public_key()
    with pytest.raises(ValueError, match="Issuer"):
        leaf.verify_directly_issued_by(of_other)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.promise("keys of the authorities are nowhere")
def test_keys_of_the_authorities_are_nowhere(side: str, made: dict[str, dict[str, bytes]]) -> None:
    data = made[f"hvd-agent-{side}"]
    assert [key for key, content in data.items() if b"PRIVATE KEY" in content] == ["tls.key"]
    assert data["tls.key"].count(b"BEGIN") == 1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.promise("private keys are in the secrets only")
def test_private_keys_are_in_the_secrets_only(side: str) -> None:
    manifests = render(BY_HELM)
    elsewhere = json.dumps([item for item in manifests if item["kind"] != "Secret"])
    key = secrets(manifests)[f"hvd-agent-{side}"]["tls.key"]
    begin, *body, _ = key.decode().splitlines()
    assert begin == PRIVATE_KEY
    encoded = base64.b64encode(key).decode()
    assert [line for line in (encoded, *body) if line in elsewhere] == []


def test_keys_are_files_in_the_pods_and_no_variables() -> None:
    assert "secretKeyRef" not in json.dumps(render(BY_HELM))


@pytest.mark.parametrize("values", [{}, BY_HELM, BROUGHT], ids=["", "no account", "brought"])
@pytest.mark.promise("pod has its own key and the authority of its peers")
def test_pod_has_its_own_key_and_the_authority_of_its_peers(values: Values) -> None:
    """A worker gets nothing of the master's Secret but the certificate of its authority."""
    manifests = render(values)
    names = list(values.get("agent", {}).values()) or ["hvd-agent-master", "hvd-agent-worker"]
    files = {
        kind: {source["name"]: source["items"] for source in key_sources(manifests, kind)}
        for kind in ("Job", "StatefulSet")
    }
    assert files == {
        "Job": {names[0]: OWN, names[1]: OF_PEER},
        "StatefulSet": {names[0]: OF_PEER, names[1]: OWN},
    }


def test_no_pod_mounts_a_secret_otherwise() -> None:
    with_secrets = {
        kind.split()[0]: [
            volume["name"] for volume in spec["volumes"] if "secret" in json.dumps(volume).lower()
        ]
        for kind, spec in pod_specs(render(EVERY_POD)).items()
    }
    assert with_secrets == {
        "StatefulSet": ["keys"],
        "Job": ["keys"],
        "Deployment": [],
        "Pod": ["keys"],
    }


@pytest.mark.promise("only master and worker mount the keys and only to read")
def test_only_master_and_worker_mount_the_keys_and_only_to_read() -> None:
    mounts = {
        container["name"]: mount
        for container in containers_of(render(EVERY_POD))
        for mount in container["volumeMounts"]
        if mount["name"] == "keys"
    }
    expected = {"name": "keys", "mountPath": "/horovod/keys", "readOnly": True}
    assert mounts == {"master": expected, "worker": expected}


@pytest.mark.promise("owner and group of the keys may read them")
def test_owner_and_group_of_the_keys_may_read_them() -> None:
    modes = [
        volume["projected"]["defaultMode"]
        for spec in pod_specs(render(EVERY_POD)).values()
        for volume in spec["volumes"]
        if volume["name"] == "keys"
    ]
    # Of the workers, the master and the pod of `helm test`.
    assert modes == [0o440] * 3


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.promise("rendering without the cluster is repeatable")
def test_rendering_without_the_cluster_is_repeatable(helm: str) -> None:
    """A GitOps tool compares each rendering with the last one."""
    assert render_uncached({}, helm) == render_uncached({}, helm)


@pytest.mark.promise("rendering without the cluster makes no keys")
def test_rendering_without_the_cluster_makes_no_keys() -> None:
    """The first master makes them."""
    assert secrets(render()) == {"hvd-agent-master": {}, "hvd-agent-worker": {}}


def test_master_knows_which_secrets_it_may_fill() -> None:
    assert variables(render(), "Job")["HVD_KEYS_SECRETS"] == "hvd-agent-master hvd-agent-worker"


@pytest.mark.parametrize(
    ("values", "is_optional"),
    [({}, [True, True]), (BY_HELM, [False, False]), (BROUGHT, [False, False])],
    ids=["", "no account", "brought"],
)
def test_only_a_master_that_may_make_the_keys_starts_without_them(
    values: Values, is_optional: list[bool]
) -> None:
    manifests = render(values)
    of_master = [source.get("optional", False) for source in key_sources(manifests, "Job")]
    assert of_master == is_optional
    assert not any("optional" in source for source in key_sources(manifests, "StatefulSet"))


def test_each_generation_has_secrets_of_its_own() -> None:
    """An upgrade cannot keep keys under another name."""
    manifests = render({"agent": {"generation": 2}})
    names = ["hvd-agent-master-2", "hvd-agent-worker-2"]
    assert list(secrets(manifests)) == names
    assert variables(manifests, "Job")["HVD_KEYS_SECRETS"] == " ".join(names)
    assert [source["name"] for source in key_sources(manifests, "Job")] == names


@pytest.mark.parametrize(
    ("values", "suffix"),
    [
        ({}, "1.hvd"),
        ({"agent": {"generation": 2}}, "2.hvd"),
        ({"agent": {**BROUGHT["agent"], "generation": 3}}, "3.hvd"),
        ({"nameOverride": "other"}, "1.hvd-other"),
    ],
)
def test_both_sides_know_the_name_in_the_certificate_of_the_other(
    values: Values, suffix: str
) -> None:
    manifests = render(values)
    settings = run_settings(manifests)
    master, worker = (f"{side}-{suffix}.team.horovod.internal" for side in SIDES)
    assert settings["master_name"] == master
    assert settings["worker_name"] == worker
    assert variables(manifests)["HVD_MASTER_NAME"] == master


@pytest.mark.promise("secrets of the user replace those of the chart")
def test_secrets_of_the_user_replace_those_of_the_chart() -> None:
    manifests = render(BROUGHT)
    assert secrets(manifests) == {}
    assert "HVD_KEYS_SECRETS" not in variables(manifests, "Job")


@pytest.mark.promise("master has no right to the secrets of the user")
def test_master_has_no_right_to_the_secrets_of_the_user() -> None:
    assert "secrets" not in str(one(render(BROUGHT), "Role")["rules"])


@pytest.mark.promise("agent listens on an unprivileged port")
def test_agent_listens_on_an_unprivileged_port() -> None:
    (port,) = main_container(render(), "StatefulSet")["ports"]
    assert port == {"name": "agent", "containerPort": 2222}


def test_port_of_the_agent_reaches_master_workers_and_service() -> None:
    manifests = render({"agent": {"port": 2022}})
    assert run_settings(manifests)["agent_port"] == 2022
    assert variables(manifests)["HVD_AGENT_PORT"] == "2022"
    assert main_container(manifests, "StatefulSet")["ports"][0]["containerPort"] == 2022
    (port,) = one(manifests, "Service")["spec"]["ports"]
    assert port == {"name": "agent", "port": 2022, "targetPort": "agent"}


def test_worker_has_started_when_its_agent_listens() -> None:
    assert main_container(render(), "StatefulSet")["startupProbe"]["tcpSocket"] == {"port": "agent"}


@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
@pytest.mark.promise("pods name a user whose uid may have no entry")
def test_pods_name_a_user_whose_uid_may_have_no_entry(kind: str) -> None:
    """Python's getpass and torch ask for it."""
    named = variables(render(), kind)
    assert named["USER"] == "horovod"
    assert named["LOGNAME"] == "horovod"

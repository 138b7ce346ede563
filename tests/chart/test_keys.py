"""The keys of a release: Helm makes them, or leaves them to the master or to the user."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.chart.namespaces import empty_namespace
from tests.chart.releases import (
    RUN,
    SECRETS,
    Keys,
    read_keys,
    refuse,
    upgrade,
    wait_for_default_account,
)
from tests.chart.render import CHART
from tests.support.namespace import HELMS, Namespace

OF_THE_MASTER = {
    name: base64.b64encode(name.encode()).decode() for name in ("tls.crt", "tls.key", "ca.crt")
}


def patch_secret(place: Namespace, name: str, kind: str, body: Any) -> None:
    place.kubectl("patch", "secret", name, f"--type={kind}", f"--patch={json.dumps(body)}")


@pytest.fixture(scope="module", params=HELMS)
def keys(kubeconfig: Path, request: pytest.FixtureRequest) -> dict[str, Keys]:
    """The keys after each of these upgrades."""
    found: dict[str, Keys] = {}

    def upgrade_and_look(name: str, suffix: str = "", **values: Any) -> None:
        upgrade(place, request.param, CHART, RUN, values)
        found[name] = read_keys(place, suffix)

    with empty_namespace(kubeconfig) as place:
        wait_for_default_account(place)
        upgrade_and_look("installed")
        upgrade_and_look("again")
        place.kubectl("delete", "secret", SECRETS[0])
        upgrade_and_look("one was deleted")
        # As a renderer without access to the cluster leaves it: the master may make them just now.
        for name in SECRETS:
            patch_secret(place, name, "json", [{"op": "remove", "path": "/data"}])
        upgrade_and_look("empty")
        patch_secret(place, SECRETS[1], "merge", {"data": OF_THE_MASTER})
        upgrade_and_look("the master makes the second")
        patch_secret(place, SECRETS[0], "merge", {"data": OF_THE_MASTER})
        upgrade_and_look("made by the master")
        upgrade_and_look("next generation", "-2", agent={"generation": 2})
    return found


def test_helm_makes_the_keys(keys: dict[str, Keys]) -> None:
    for made in keys["installed"]:
        assert made is not None
        assert made.keys() == {"tls.crt", "tls.key", "ca.crt"}


@pytest.mark.promise("upgrade keeps the keys")
def test_upgrade_keeps_the_keys(keys: dict[str, Keys]) -> None:
    assert keys["again"] == keys["installed"]


def test_helm_makes_both_secrets_again_when_one_was_deleted(keys: dict[str, Keys]) -> None:
    before = keys["installed"]
    for made, old in zip(keys["one was deleted"], before, strict=True):
        assert made is not None
        assert old is not None
        assert not set(made.values()) & set(old.values())


def test_helm_leaves_empty_secrets_to_the_master(keys: dict[str, Keys]) -> None:
    assert keys["empty"] == (None, None)


def test_helm_leaves_the_rest_to_a_master_that_makes_the_keys(keys: dict[str, Keys]) -> None:
    assert keys["the master makes the second"] == (None, OF_THE_MASTER)


def test_helm_leaves_the_keys_of_the_master(keys: dict[str, Keys]) -> None:
    assert keys["made by the master"] == (OF_THE_MASTER, OF_THE_MASTER)


def test_next_generation_has_other_keys(keys: dict[str, Keys]) -> None:
    for first, other in zip(keys["installed"], keys["next generation"], strict=True):
        assert first is not None
        assert other is not None
        assert not set(other.values()) & {*OF_THE_MASTER.values(), *first.values()}


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt"])
def test_secret_of_the_user_without_a_key_is_refused(place: Namespace, missing: str) -> None:
    """As cert-manager writes it with an issuer that names no authority, for instance."""
    for name, left_out in (("mine", ""), ("theirs", missing)):
        literals = [f"--from-literal={key}=x" for key in OF_THE_MASTER if key != left_out]
        place.kubectl("create", "secret", "generic", name, *literals)
    message = refuse(place, {"agent": {"masterSecret": "mine", "workerSecret": "theirs"}})
    assert 'agent.workerSecret is "theirs"' in message
    assert f'no such Secret with the key "{missing}"' in message


def test_secret_of_the_user_that_does_not_exist_is_refused(place: Namespace) -> None:
    message = refuse(place, {"agent": {"masterSecret": "none", "workerSecret": "neither"}})
    assert 'agent.masterSecret is "none"' in message

"""The keys of a release: Helm makes them, or leaves them to the master or to the user."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import CHART
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


def contents(keys: Keys) -> set[str]:
    """The keys, certificates and authorities of both Secrets."""
    return {content for data in keys for content in (data or {}).values()}


def test_helm_makes_the_keys(keys: dict[str, Keys]) -> None:
    assert [{*(data or {})} for data in keys["installed"]] == [{*OF_THE_MASTER}] * 2


@pytest.mark.promise("upgrade keeps the keys")
def test_upgrade_keeps_the_keys(keys: dict[str, Keys]) -> None:
    assert keys["again"] == keys["installed"]


def test_helm_makes_both_secrets_again_when_one_was_deleted(keys: dict[str, Keys]) -> None:
    after = contents(keys["one was deleted"])
    assert len(after) == 6
    assert not after & contents(keys["installed"])


def test_helm_leaves_empty_secrets_to_the_master(keys: dict[str, Keys]) -> None:
    assert keys["empty"] == (None, None)


def test_helm_leaves_the_rest_to_a_master_that_makes_the_keys(keys: dict[str, Keys]) -> None:
    assert keys["the master makes the second"] == (None, OF_THE_MASTER)


def test_helm_leaves_the_keys_of_the_master(keys: dict[str, Keys]) -> None:
    assert keys["made by the master"] == (OF_THE_MASTER, OF_THE_MASTER)


def test_next_generation_has_other_keys(keys: dict[str, Keys]) -> None:
    other = contents(keys["next generation"])
    assert len(other) == 6
    assert not other & {*OF_THE_MASTER.values(), *contents(keys["installed"])}


def create_secret(place: Namespace, name: str, keys: set[str]) -> None:
    literals = [f"--from-literal={key}=x" for key in keys]
    place.kubectl("create", "secret", "generic", name, *literals)


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt"])
def test_secret_of_the_user_without_a_key_is_refused(place: Namespace, missing: str) -> None:
    """As cert-manager writes it with an issuer that names no authority, for instance."""
    create_secret(place, "mine", {*OF_THE_MASTER})
    create_secret(place, "theirs", {*OF_THE_MASTER} - {missing})
    message = refuse(place, {"agent": {"masterSecret": "mine", "workerSecret": "theirs"}})
    assert 'agent.workerSecret is "theirs"' in message
    assert f'no such Secret with the key "{missing}"' in message


def test_secret_of_the_user_that_does_not_exist_is_refused(place: Namespace) -> None:
    message = refuse(place, {"agent": {"masterSecret": "none", "workerSecret": "neither"}})
    assert 'agent.masterSecret is "none"' in message

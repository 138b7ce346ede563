"""Keys of a release that was rendered without the cluster: the first master makes them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.cluster import keys, kube
from hvd_pods.common import errors, ssh
from tests.fakes import faults
from tests.fakes.api import FakeApi

SECRET = "core/secrets/hvd-ssh"
ENVIRONMENT = {"HVD_SSH_SECRET": "hvd-ssh"}


@pytest.fixture
def api(api_server: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kube.Api:
    """The API of a pod whose Secret is mounted and empty."""
    for attribute in ("GENERATED", "SECRETS"):
        folder = tmp_path / attribute.lower()
        folder.mkdir()
        for module in (keys, ssh):
            monkeypatch.setattr(module, attribute, folder)
    put(api_server)
    return kube.Api()


def put(api_server: FakeApi, **data: str) -> None:
    item: dict[str, Any] = {"metadata": {"name": "hvd-ssh", "resourceVersion": "7"}}
    api_server.put("core/secrets", {**item, "data": data} if data else item)


def stored(api_server: FakeApi) -> dict[str, bytes]:
    item = api_server.find("core/secrets", "hvd-ssh")
    assert item
    return {name: base64.b64decode(value) for name, value in item["data"].items()}


def test_the_first_master_makes_the_keys_and_the_next_one_finds_them(
    api: kube.Api, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = keys.find_keys(api, ENVIRONMENT)
    made = stored(api_server)
    assert made.keys() == {"user-key", "host-key"}
    assert made["user-key"] != made["host-key"]
    for name, content in made.items():
        assert content.startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
        assert (folder / name).read_bytes() == content
        assert (folder / name).stat().st_mode & 0o777 == 0o600
        assert ssh.derive_public_key(folder / name).startswith("ecdsa-sha2-")
    log = capsys.readouterr().out
    assert "created the SSH keys of the release in Secret hvd-ssh" in log
    assert "PRIVATE" not in log

    assert keys.find_keys(api, ENVIRONMENT) == folder
    assert stored(api_server) == made
    assert len(api_server.asked("PATCH", SECRET)) == 1


def test_of_two_masters_the_first_ones_keys_are_used(api: kube.Api, api_server: FakeApi) -> None:
    other = {name: base64.b64encode(name.encode()).decode() for name in keys.NAMES}

    def conflict(handler: Any) -> None:
        # The other master was faster.
        put(api_server, **other)
        handler.send_json(*faults.status_object(409, "the object has been modified"))

    api_server.fail("PATCH", SECRET, conflict)
    folder = keys.find_keys(api, ENVIRONMENT)
    (patch,) = api_server.asked("PATCH", SECRET)
    assert patch.body["metadata"] == {"resourceVersion": "7"}, "the API server finds the conflict"
    assert (folder / "user-key").read_bytes() == b"user-key"


@pytest.mark.parametrize(
    ("method", "failure", "error"),
    [
        ("GET", faults.status(403), errors.ConfigurationError),
        ("GET", faults.status(404), errors.ConfigurationError),
        ("PATCH", faults.status(403), errors.ConfigurationError),
        ("PATCH", faults.status(422), errors.RunError),
    ],
)
def test_a_secret_that_cannot_be_filled_is_named_with_the_remedy(
    api: kube.Api,
    api_server: FakeApi,
    method: str,
    failure: faults.Failure,
    error: type[errors.RunError],
) -> None:
    api_server.fail(method, SECRET, failure, times=100)
    with pytest.raises(errors.RunError) as refused:
        keys.find_keys(api, ENVIRONMENT)
    assert type(refused.value) is error
    for word in ("Secret hvd-ssh", "get and patch", "ssh.existingSecret"):
        assert word in str(refused.value)

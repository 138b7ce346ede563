"""Keys of a release that was rendered without the cluster: the first master makes them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.cluster import certificates, kube
from hvd_pods.cluster import key_secrets as keys
from hvd_pods.cluster.certificates import MASTER, WORKER, Files
from hvd_pods.shared import errors
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.unit.hvd_pods.support.call_limits import ONCE, PATIENT

MASTER_SECRET = "hvd-agent-master"
WORKER_SECRET = "hvd-agent-worker"
BOTH = (MASTER_SECRET, WORKER_SECRET)
# What each of them has.
ORDER = ["ca.crt", "tls.crt", "tls.key"]
PATHS = tuple(f"core/secrets/{name}" for name in BOTH)
ENVIRONMENT = {"HVD_KEYS_SECRETS": " ".join(BOTH)}
# What the keys need to know of a run.
RUN: Any = SimpleNamespace(
    master_name="master-1.hvd.team.horovod.internal",
    worker_name="worker-1.hvd.team.horovod.internal",
)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The folder where the Secrets are mounted: empty."""
    folder = tmp_path / "keys"
    folder.mkdir()
    (tmp_path / "generated").mkdir()
    return folder


Find = Callable[..., Path]


@pytest.fixture
def find(mounted: Path) -> Find:
    """Find the keys of the run, with an API server and an environment."""
    folders = keys.Folders(mounted, mounted.with_name("generated"))

    def find(api: kube.Api | None, environment: Mapping[str, str] = ENVIRONMENT) -> Path:
        return keys.find_keys(api, RUN, folders, environment)

    return find


def mount(folder: Path, *names: str, content: str = "mounted") -> None:
    for name in names:
        (folder / name).write_text(content)


@pytest.fixture
def api(api_server: FakeApi, mounted: Path) -> kube.Api:
    """The API of a pod whose Secrets are mounted and empty."""
    for name in BOTH:
        put(api_server, name)
    return kube.Api(ONCE)


@pytest.fixture(scope="module")
def others() -> dict[str, Files]:
    """Keys that another master has made, by the name of the Secret."""
    return {
        MASTER_SECRET: certificates.make_files(MASTER, RUN.master_name),
        WORKER_SECRET: certificates.make_files(WORKER, RUN.worker_name),
    }


def put(api_server: FakeApi, name: str, files: Files | None = None, version: str = "7") -> None:
    item: dict[str, Any] = {"metadata": {"name": name, "resourceVersion": version}}
    if files is not None:
        item["data"] = {key: base64.b64encode(text).decode() for key, text in files.items()}
    api_server.put("core/secrets", item)


def stored(api_server: FakeApi, name: str) -> Files:
    item = api_server.find("core/secrets", name)
    assert item
    return {key: base64.b64decode(text) for key, text in item.get("data", {}).items()}


def require_pair(api_server: FakeApi, folder: Path) -> None:
    """The Secrets belong together, and the master's folder has its part of them."""
    master, worker = (stored(api_server, name) for name in BOTH)
    keys.check_handshake(master, worker, RUN.master_name, RUN.worker_name, folder.parent)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "tls.crt": master["tls.crt"],
        "tls.key": master["tls.key"],
        "peer-ca.crt": worker["ca.crt"],
    }


def test_keys_that_a_master_has_made_are_in_files_of_its_user_alone(
    find: Find, api: kube.Api
) -> None:
    files = find(api).iterdir()
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


@pytest.mark.promise("the first master makes the keys and the next one finds them")
def test_the_first_master_makes_the_keys_and_the_next_one_finds_them(
    find: Find, api: kube.Api, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = find(api)
    log = capsys.readouterr().out
    for name in BOTH:
        assert name in log
    assert "PRIVATE" not in log
    made = [stored(api_server, name) for name in BOTH]
    assert find(api) == folder
    assert [stored(api_server, name) for name in BOTH] == made
    assert [len(api_server.asked("PATCH", path)) for path in PATHS] == [1, 1]


@pytest.mark.promise("no private key is where it does not belong")
def test_no_private_key_is_where_it_does_not_belong(
    find: Find, api: kube.Api, api_server: FakeApi, tmp_path: Path
) -> None:
    folder = find(api)
    master, worker = (stored(api_server, name) for name in BOTH)
    assert master["tls.key"] not in worker.values()
    assert worker["tls.key"] not in master.values()
    generated = (tmp_path / "generated").rglob("*")
    written = [path.read_bytes() for path in generated if path.is_file()]
    assert len(written) == len([*folder.iterdir()])
    assert worker["tls.key"] not in written


def test_mounted_keys_are_used_without_a_call(
    find: Find, api: kube.Api, api_server: FakeApi, mounted: Path
) -> None:
    mount(mounted, *keys.IN_FOLDER)
    assert find(api) == mounted
    assert find(api, {}) == mounted
    assert find(None, {}) == mounted
    assert not api_server.requests


@pytest.mark.parametrize("empty", [[], ["peer-ca.crt"]], ids=["missing", "empty"])
def test_mounted_keys_are_not_used_in_part(
    find: Find, api: kube.Api, api_server: FakeApi, mounted: Path, empty: list[str]
) -> None:
    # As when another master has filled one Secret, and the kubelet has mounted that.
    mount(mounted, "tls.crt", "tls.key")
    mount(mounted, *empty, content="")
    require_pair(api_server, find(api))


def test_secrets_of_the_user_without_keys_are_named_and_not_filled(
    find: Find, api: kube.Api, mounted: Path
) -> None:
    mount(mounted, "tls.crt")
    missing = f"{mounted} does not have tls.key, peer-ca.crt.*{REMEDY}"
    with pytest.raises(errors.ConfigurationError, match=missing):
        find(api, {})


REMEDY = r"agent\.masterSecret.*agent\.workerSecret"


@pytest.mark.parametrize("filled", BOTH)
def test_a_secret_that_another_master_has_left_empty_is_filled(
    find: Find, api: kube.Api, api_server: FakeApi, others: dict[str, Files], filled: str
) -> None:
    put(api_server, filled, others[filled])
    require_pair(api_server, find(api))
    assert stored(api_server, filled) == others[filled], "what is there is kept"
    assert not api_server.asked("PATCH", f"core/secrets/{filled}")


def test_a_master_that_ends_between_the_secrets_is_continued(
    find: Find, api: kube.Api, api_server: FakeApi
) -> None:
    api_server.fail("PATCH", PATHS[1], faults.reset)
    with pytest.raises(errors.RunError):
        find(api)
    first = stored(api_server, MASTER_SECRET)
    assert first
    assert not stored(api_server, WORKER_SECRET)
    require_pair(api_server, find(api))
    assert stored(api_server, MASTER_SECRET) == first


@pytest.mark.parametrize("path", PATHS)
def test_keys_of_the_faster_of_two_masters_are_used(
    find: Find, api: kube.Api, api_server: FakeApi, path: str
) -> None:
    found: list[Files] = []

    def conflict(handler: Any) -> None:
        # The other master makes everything that is missing before this change comes.
        find(kube.Api(ONCE))
        found.extend(stored(api_server, name) for name in BOTH)
        for name, files in zip(BOTH, found, strict=True):
            put(api_server, name, files, version="8")
        handler.send_json(*faults.status_object(409, "the object has been modified"))

    api_server.fail("PATCH", path, conflict)
    folder = find(api)
    require_pair(api_server, folder)
    assert [stored(api_server, name) for name in BOTH] == found
    versions = [patch.body["metadata"] for patch in api_server.asked("PATCH", path)]
    assert versions == [{"resourceVersion": "7"}] * 2, "the server finds the conflict"


def test_the_keys_are_the_ones_of_a_call_whose_answer_was_lost(
    find: Find, api: kube.Api, api_server: FakeApi
) -> None:
    def lose_answer(handler: Any) -> None:
        body = api_server.asked("PATCH", PATHS[0])[-1].body
        files = {key: base64.b64decode(text) for key, text in body["data"].items()}
        put(api_server, MASTER_SECRET, files, version="8")
        faults.reset(handler)

    api_server.fail("PATCH", PATHS[0], lose_answer)
    require_pair(api_server, find(kube.Api(PATIENT)))
    sent = [patch.body["data"] for patch in api_server.asked("PATCH", PATHS[0])]
    assert len(sent) == 2
    assert sent[0] == sent[1]


def test_a_secret_that_never_stays_the_same_is_given_up(
    find: Find, api: kube.Api, api_server: FakeApi
) -> None:
    api_server.fail("PATCH", PATHS[1], faults.status(409), times=100)
    with pytest.raises(errors.RunError, match=" 5 "):
        find(api)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("method", "failure", "error"),
    [
        ("GET", faults.status(403), errors.ConfigurationError),
        ("GET", faults.status(404), errors.ConfigurationError),
        ("GET", faults.reset, errors.RunError),
        ("PATCH", faults.status(403), errors.ConfigurationError),
        ("PATCH", faults.status(422), errors.RunError),
    ],
)
def test_secrets_that_cannot_be_filled_are_named_with_the_remedy(
    find: Find,
    api: kube.Api,
    api_server: FakeApi,
    path: str,
    method: str,
    failure: faults.Failure,
    error: type[errors.RunError],
) -> None:
    api_server.fail(method, path, failure, times=100)
    said = rf"{MASTER_SECRET}.*{WORKER_SECRET}.*get and patch.*{REMEDY}"
    with pytest.raises(errors.RunError, match=said) as refused:
        find(api)
    assert type(refused.value) is error


def test_a_secret_with_some_of_its_keys_is_not_given_others(
    find: Find, api: kube.Api, api_server: FakeApi, others: dict[str, Files]
) -> None:
    some = {**others[WORKER_SECRET], "tls.key": b""}
    put(api_server, WORKER_SECRET, some)
    said = rf"{WORKER_SECRET}.*tls\.crt, ca\.crt but not tls\.key.*agent\.generation"
    with pytest.raises(errors.ConfigurationError, match=said):
        find(api)
    assert stored(api_server, WORKER_SECRET) == some
    assert not stored(api_server, MASTER_SECRET)


def test_keys_that_the_image_does_not_accept_are_not_stored(
    find: Find,
    api: kube.Api,
    api_server: FakeApi,
    others: dict[str, Files],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_the_other = {MASTER: others[WORKER_SECRET], WORKER: others[MASTER_SECRET]}
    monkeypatch.setattr(keys, "make_files", lambda role, name: of_the_other[role])
    said = rf"OpenSSL.*{REMEDY}"
    with pytest.raises(errors.ConfigurationError, match=said):
        find(api)
    assert not any(stored(api_server, name) for name in BOTH)

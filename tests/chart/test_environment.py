"""The environment of containers: each name once, the last entry wins, references still resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.chart.cases import ready_cases, ready_manifests
from tests.chart.render import (
    Manifest,
    Values,
    of_kind,
    one,
    pod_spec,
    refusal,
    render,
    run_settings,
)

Entry = dict[str, str]
REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Return the pod spec of each pod and workload."""
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            yield manifest["spec"]
        elif "template" in manifest.get("spec", {}):
            yield pod_spec(manifest)


def containers(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Return all containers and init containers."""
    for spec in pods(manifests):
        yield from spec.get("initContainers", [])
        yield from spec["containers"]


def check_names(manifests: list[Manifest]) -> None:
    """Server-side apply refuses two items of a list that have the same key."""
    lists = [("volumes", "name", spec) for spec in pods(manifests)]
    for container in containers(manifests):
        lists += [("env", "name", container), ("volumeMounts", "mountPath", container)]
    for field, key, where in lists:
        names = [item[key] for item in where.get(field, [])]
        assert len(names) == len(set(names)), (field, names)


@pytest.mark.parametrize("case", ready_cases())
def test_names_are_unique_and_references_resolve(case: str) -> None:
    manifests = ready_manifests(case)
    check_names(manifests)
    for container in containers(manifests):
        before: set[str] = set()
        for entry in container.get("env", []):
            references = set(REFERENCE.findall(entry.get("value", ""))) - {""}
            assert references <= before, entry
            before.add(entry["name"])


@pytest.mark.parametrize(
    ("preload", "expected"),
    [(None, []), ([], [""]), (["torch", "horovod.torch"], ["torch horovod.torch"])],
)
def test_preload_overrides_what_the_image_names(
    preload: list[str] | None, expected: list[str]
) -> None:
    entries = worker(launch={"preload": preload})
    assert [e["value"] for e in entries if e["name"] == "HVD_PRELOAD"] == expected


@pytest.mark.parametrize("module", ["os; x", "a b", "-m", "a..b", ""])
def test_preload_names_modules(module: str) -> None:
    assert "preload" in refusal({"launch": {"preload": [module]}})


@pytest.mark.parametrize(
    ("timeout", "seconds", "period"),
    [(None, 3600, "15"), (0, 0, "15"), (600, 600, "15"), (20, 20, "10"), (1, 1, "1")],
)
def test_stalls_are_looked_for_twice_before_one_ends_the_attempt(
    timeout: int | None, seconds: int, period: str
) -> None:
    manifests = render({"launch": {"stallTimeoutSeconds": timeout}})
    entries = pod_spec(one(manifests, "StatefulSet"))["containers"][0]["env"]
    name = "HOROVOD_STALL_CHECK_TIME_SECONDS"
    assert [entry["value"] for entry in entries if entry["name"] == name] == [period]
    assert run_settings(manifests)["stallTimeoutSeconds"] == seconds


@pytest.mark.parametrize("seconds", [None, 0, 300])
def test_master_knows_how_long_it_has_to_end(seconds: int | None) -> None:
    settings = run_settings(render({"master": {"terminationGracePeriodSeconds": seconds}}))
    # Kubernetes' own default.
    assert settings["gracePeriodSeconds"] == (30 if seconds is None else seconds)


@pytest.mark.parametrize(
    ("key", "limit"),
    [("launch.stallTimeoutSeconds", 7 * 86400), ("worker.terminationGracePeriodSeconds", 86400),
     ("master.terminationGracePeriodSeconds", 86400)],
)  # fmt: skip
def test_times_that_cannot_be_meant_are_refused(key: str, limit: int) -> None:
    group, name = key.split(".")
    for seconds in (-1, limit + 1, 1.5, "60s"):
        assert f"/{group}/{name}" in refusal({group: {name: seconds}})


def worker(*env: Entry, **values: object) -> list[Entry]:
    """Return the environment of a worker with these entries."""
    manifests = render({"worker": {"env": list(env)}, **values})
    check_names(manifests)
    entries: list[Entry] = pod_spec(one(manifests, "StatefulSet"))["containers"][0]["env"]
    return entries


def variable(name: str, value: str) -> Entry:
    return {"name": name, "value": value}


def last(entries: list[Entry], count: int) -> list[str]:
    """Return the last entries as NAME=VALUE."""
    return [f"{entry['name']}={entry['value']}" for entry in entries[-count:]]


def test_worker_env_overrides_the_chart() -> None:
    """As docs/launch.md describes for Intel MPI's own pinning."""
    environment = worker(variable("I_MPI_PIN", "1"), variable("I_MPI_PIN_DOMAIN", "socket"))
    values = {entry["name"]: entry.get("value") for entry in environment}
    assert (values["I_MPI_PIN"], values["I_MPI_PIN_DOMAIN"]) == ("1", "socket")


def test_env_of_a_group_overrides_that_of_all_workers() -> None:
    groups = [{"name": "a", "env": [variable("LR", "2")]}, {"name": "b"}]
    manifests = render({"worker": {"env": [variable("LR", "1")]}, "workerGroups": groups})
    check_names(manifests)
    sets = of_kind(manifests, "StatefulSet")
    winners = [last(pod_spec(item)["containers"][0]["env"], 1) for item in sets]
    assert winners == [["LR=2"], ["LR=1"]]


def test_last_entry_of_a_name_wins_in_every_container() -> None:
    twice = [variable("TWICE", "1"), variable("TWICE", "2")]
    manifests = render(
        {
            "worker": {"env": twice},
            "master": {"env": [*twice, variable("HOME", "/home/me")]},
            "staging": {"command": ["true"], "path": "/data/set", "env": twice},
            "results": {"command": ["true"], "path": "/data", "env": twice},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    )
    check_names(manifests)
    winners = [
        entry["value"]
        for container in containers(manifests)
        for entry in container["env"]
        if entry["name"] == "TWICE"
    ]
    # The staging container, the worker, that which stores the results, the master and its copy in
    # the pod of `helm test`.
    assert winners == ["2"] * 5
    master = pod_spec(one(manifests, "Job"))["containers"][0]["env"]
    assert variable("HOME", "/home/me") in master


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        # What refers to an overridden variable still comes after it.
        (["A=1", "B=$(A)", "A=2"], ["A=2", "B=$(A)"]),
        # What the last entry refers to is moved before it.
        (["A=1", "B=$(A)", "C=3", "A=$(C)"], ["C=3", "A=$(C)", "B=$(A)"]),
        # A variable that extends its own earlier value has that value written out.
        (["P=/a", "P=$(P):/b"], ["P=/a:/b"]),
        (["X=1", "P=$(X)", "Y=2", "P=$(P):$$(P)"], ["X=1", "P=$(X):$$(P)", "Y=2"]),
        # $$ is an escaped dollar sign, and a reference to what comes later stays as it is.
        (["A=$$(B)", "A=$(B)", "B=1"], ["A=$(B)", "B=1"]),
    ],
)
def test_references_resolve_as_in_the_list_that_was_given(
    entries: list[str], expected: list[str]
) -> None:
    pairs = [entry.partition("=") for entry in entries]
    environment = worker(*(variable(name, value) for name, _, value in pairs))
    assert last(environment, len(expected)) == expected


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            [variable("A", "1"), variable("B", "$(A)"), variable("A", "$(B)")],
            ['worker.env of group "worker"', "A refers to itself"],
        ),
        (
            [{"name": "A", "valueFrom": {"fieldRef": {}}}, variable("A", "$(A)x")],
            ['worker.env of group "worker"', "A is", "valueFrom", "another name"],
        ),
        ([variable("HVD_SLOTS", "4")], ["worker.env", "HVD_SLOTS", "another name"]),
    ],
)
def test_impossible_environment_is_refused(env: list[Entry], words: list[str]) -> None:
    message = refusal({"worker": {"env": env}})
    for word in words:
        assert word in message


def test_mount_of_the_user_replaces_the_charts_own() -> None:
    """For example a /tmp on a disk instead of one on the node's root file system."""
    values: Values = {
        "volumes": [{"name": "scratch", "hostPath": {"path": "/scratch"}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    manifests = render(values)
    check_names(manifests)
    for kind in ("StatefulSet", "Job"):
        mounts = pod_spec(one(manifests, kind))["containers"][0]["volumeMounts"]
        assert [m["name"] for m in mounts if m["mountPath"] == "/tmp"] == ["scratch"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"volumes": [{"name": "ssh", "emptyDir": {}}]}, ["volumes", '"ssh"', "rename"]),
        (
            {"workerGroups": [{"name": "a", "volumes": [{"name": "files", "emptyDir": {}}]}]},
            ['volumes of group "a"', '"files"'],
        ),
        (
            {"volumeMounts": [{"name": "x", "mountPath": "/horovod/bin"}]},
            ["volumeMounts", "/horovod/bin", "another path"],
        ),
    ],
)
def test_reserved_names_are_refused(values: Values, words: list[str]) -> None:
    message = refusal(values)
    for word in words:
        assert word in message

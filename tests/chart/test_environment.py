"""The environment of containers: each name once, the last entry wins, references still resolve."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chart.render import Manifest, pod_spec, render, variables
from tests.chart.test_security import EVERY_POD

Entry = dict[str, str]


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


def variable(name: str, value: str) -> Entry:
    return {"name": name, "value": value}


def worker(*env: Entry, **values: object) -> dict[str, str]:
    """Return the environment of a worker with these entries."""
    return variables(render({"worker": {"env": list(env)}, **values}))


@pytest.mark.parametrize(
    ("preload", "expected"),
    [(None, None), ([], ""), (["torch", "horovod.torch"], "torch horovod.torch")],
)
def test_preload_overrides_what_the_image_names(
    preload: list[str] | None, expected: str | None
) -> None:
    assert worker(launch={"preload": preload}).get("HVD_PRELOAD") == expected


def test_worker_env_overrides_the_chart() -> None:
    """As docs/launch.md describes for Intel MPI's own pinning."""
    environment = worker(variable("I_MPI_PIN", "1"), variable("I_MPI_PIN_DOMAIN", "socket"))
    assert (environment["I_MPI_PIN"], environment["I_MPI_PIN_DOMAIN"]) == ("1", "socket")


def test_last_entry_of_a_name_wins_in_every_container() -> None:
    """The entries of a group come after those of all workers."""
    twice = [variable("TWICE", "1"), variable("TWICE", "2")]
    manifests = render(
        {
            **EVERY_POD,
            "worker": {"env": twice[:1]},
            "workerGroups": [{"name": "a", "env": twice[1:]}],
            "master": {"env": [*twice, variable("HOME", "/home/me")]},
            "staging": {**EVERY_POD["staging"], "env": twice},
            "results": {**EVERY_POD["results"], "env": twice},
        }
    )
    winners = [
        (container["name"], entry["value"])
        for container in containers(manifests)
        for entry in container.get("env", [])
        if entry["name"] == "TWICE"
    ]
    # The master is in the pod of `helm test` too.
    names = ["master", "master", "results", "staging", "worker"]
    assert sorted(winners) == [(name, "2") for name in names]
    assert variables(manifests, "Job")["HOME"] == "/home/me"


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
    assert [f"{name}={value}" for name, value in environment.items()][-len(expected) :] == expected

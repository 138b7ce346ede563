"""Spares: worker pods beyond those that the ranks start on."""

from __future__ import annotations

import pytest

from tests.chart.render import Values, of_kind, one, pod_spec, refusal, render, run_settings

# One group inherits the spares, one has none.
SPARES: Values = {
    "worker": {"number": 2, "slots": 2, "spares": 3, "resources": {"requests": {"cpu": 1}}},
    "workerGroups": [{"name": "a"}, {"name": "b", "number": 1, "spares": 0}],
}


def test_spares_are_pods_without_ranks() -> None:
    manifests = render(SPARES)
    sets = {item["metadata"]["name"]: item for item in of_kind(manifests, "StatefulSet")}
    assert {name: item["spec"]["replicas"] for name, item in sets.items()} == {
        "hvd-a": 5,
        "hvd-b": 1,
    }
    of_a, of_b = (sets[name]["metadata"].get("annotations") for name in ("hvd-a", "hvd-b"))
    assert (of_a, of_b) == ({"horovod/spares": "3"}, None), "hvdchart status reads it"
    groups = run_settings(manifests)["groups"]
    assert [(group["number"], group["maximum"]) for group in groups] == [(2, 5), (1, 1)]
    rules = one(manifests, "Role")["rules"]
    pods = next(rule["resourceNames"] for rule in rules if rule["verbs"] == ["delete"])
    assert pods == [*(f"hvd-a-{ordinal}" for ordinal in range(5)), "hvd-b-0"]


def test_a_number_that_is_not_given_means_no_spares() -> None:
    for nothing in (None, 0):
        manifests = render({"worker": {"spares": nothing}})
        assert manifests == render({}), "the same run as without the key"
    assert one(manifests, "StatefulSet")["spec"]["replicas"] == 2


@pytest.mark.parametrize("gang", ["Volcano", "SchedulerPlugins"])
def test_a_gang_has_the_spares(gang: str) -> None:
    """The master may be the pod that a scheduler leaves out of a smaller gang."""
    group = one(render({**SPARES, "gang": gang}), "PodGroup")["spec"]
    assert group["minMember"] == 1 + 5 + 1
    if gang == "Volcano":
        assert group["minResources"]["cpu"] == "6100m"


def test_no_pod_of_a_run_with_spares_may_be_evicted() -> None:
    """An eviction may hit a pod with ranks as well as a spare."""
    budget = one(
        render({**SPARES, "podDisruptionBudget": {"enabled": True}}), "PodDisruptionBudget"
    )
    assert budget["spec"]["minAvailable"] == 1 + 5 + 1


def test_workers_with_and_without_spares_are_the_same() -> None:
    """So that spares can be added to a run without replacing its workers."""
    without = {**SPARES, "worker": {**SPARES["worker"], "spares": None}}
    for before, after in zip(
        of_kind(render(without), "StatefulSet"), of_kind(render(SPARES), "StatefulSet"), strict=True
    ):
        assert pod_spec(before) == pod_spec(after)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"worker": {"spares": 1}, "launch": {"mode": "elastic"}},
            ['group "worker": spares is 1', "launch.mode is elastic", "launch.elastic.minRanks"],
        ),
        (
            {"workerGroups": [{"name": "a", "spares": 2}], "launch": {"mode": "elastic"}},
            ['group "a": spares is 2', "launch.mode is elastic"],
        ),
        (
            {
                "worker": {"spares": 1},
                "launch": {"mode": "custom"},
                "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1,hvd-worker-1.hvd:1", "a"]},
            },
            ["spares is 1", "master.args", '"hvd-worker-0"', "$(HOSTFILE)", "$(LAUNCH)"],
        ),
        (
            {"worker": {"number": 9000, "spares": 1001}},
            ["number and spares", "10001 hosts", "at most 10000"],
        ),
        ({"worker": {"spares": -1}}, ["/worker/spares", "-1"]),
        ({"worker": {"spares": 10001}}, ["/worker/spares", "maximum"]),
        ({"workerGroups": [{"name": "a", "spares": "many"}]}, ["spares", "integer"]),
    ],
)
def test_spares_that_cannot_be_used_are_refused(values: Values, words: list[str]) -> None:
    message = refusal(values)
    for word in words:
        assert word in message


@pytest.mark.parametrize(("given", "used"), [(None, 12), (0, 0), (60, 60)])
def test_a_silent_worker_is_lost_within_fifteen_seconds_unless_told_otherwise(
    given: int | None, used: int
) -> None:
    """The master adds up to three seconds: files/liveness.py."""
    values = {"launch": {"lostAfterSeconds": given}}
    assert run_settings(render(values))["lostAfterSeconds"] == used


@pytest.mark.parametrize("wrong", [-1, 86401, "soon"])
def test_a_wrong_time_until_a_worker_is_lost_is_refused(wrong: int | str) -> None:
    assert "/launch/lostAfterSeconds" in refusal({"launch": {"lostAfterSeconds": wrong}})


def test_a_custom_command_may_use_spares_by_the_host_file() -> None:
    for args in (["$(LAUNCH)", "a"], ["mpirun", "--hostfile", "$(HOSTFILE)", "a"]):
        values = {"worker": {"spares": 1}, "launch": {"mode": "custom"}, "master": {"args": args}}
        assert run_settings(render(values))["groups"][0]["maximum"] == 3

"""Keys that the old chart ignored, misspelt and unknown ones."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import SpecError
from tests.unit.hvdchart.migrate.old_files import migrate_old, migrate_tree, results

GONE = "neither the old chart nor this one has such a key"


@pytest.mark.parametrize(
    ("values", "old", "reason"),
    [
        ({"queueName": "q"}, "queueName",
         "the old chart ignored it; to use it now, set queueName in the new values"),
        ({"worker": {"slots": 2}}, "worker.slots",
         "the old chart ignored it; to use it now, set worker.slots in the new values"),
        ({"tensorboard": {"enabled": True}}, "tensorboard.enabled",
         "the old chart ignored it; to use it now, set tensorboard.enabled in the new values"),
        ({"worker": {"topologySpreadConstraints": [{"maxSkew": 1}]}},
         "worker.topologySpreadConstraints[0].maxSkew",
         "the old chart ignored it; to use it now, set worker.topologySpreadConstraints in the new "
         "values"),
        ({"driver": {"args": ["mpirun a"], "suspend": True}}, "driver.suspend",
         "the old chart ignored it; to use it now, set master.suspend in the new values"),
        ({"driver": {"args": ["mpirun a"]}}, "master.args[0]",
         "the old chart ignored it; to use it now, set master.args in the new values"),
        ({"worker": {"color": 22}}, "worker.color", GONE),
        ({"ssh": {"agent": 1}}, "ssh.agent", GONE),
        ({"other": {"image": 1}}, "other.image", GONE),
        ({"worker": {"env": {}}}, "worker.env", "an empty value sets nothing"),
        ({"resources": None}, "resources", "null sets nothing"),
    ],
)  # fmt: skip
def test_key_that_the_old_chart_ignored_is_dropped_with_the_true_reason(
    values: Any, old: str, reason: str
) -> None:
    assert results(migrate_old(**values))[old] == ("dropped", "", reason)


def test_nulls_inside_a_value_are_dropped() -> None:
    migration = migrate_old(resources={"limits": {"cpu": 1, "memory": None}})
    assert migration.values["worker"]["resources"] == {"limits": {"cpu": 1}}
    result = results(migration)
    assert result["resources.limits.memory"] == ("dropped", "", "null sets nothing")
    assert result["resources.limits.cpu"][:2] == ("renamed", "worker.resources.limits.cpu")


@pytest.mark.parametrize(
    ("values", "new", "value"),
    [
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}, ("worker", "slots"), 2),
        ({"worker": {"nodeSelector": {"pool": "gpu"}}}, ("worker", "nodeSelector"),
         {"pool": "gpu"}),
        ({"master": {"tolerations": [{"key": "k"}]}}, ("master", "tolerations"), [{"key": "k"}]),
        ({"master": {"resources": {"limits": {"cpu": 1}}}}, ("master", "resources"),
         {"limits": {"cpu": 1}}),
    ],
)  # fmt: skip
def test_key_of_this_chart_takes_effect_where_nothing_else_sets_it(
    values: Any, new: tuple[str, str], value: Any
) -> None:
    migration = migrate_old(**values)
    assert migration.values[new[0]][new[1]] == value
    assert any("takes effect now; the old chart ignored it" in text for text in migration.checks)


def test_key_that_the_old_chart_used_wins_over_one_that_it_ignored() -> None:
    worker = {"resources": {"limits": {"cpu": 9}}, "nodeSelector": {"a": "b"}}
    migration = migrate_old(
        worker=worker, resources={"limits": {"cpu": 1}}, nodeSelector={"c": "d"}
    )
    assert migration.values["worker"]["resources"] == {"limits": {"cpu": 1}}
    assert migration.values["worker"]["nodeSelector"] == {"c": "d"}
    result = results(migration)
    assert result["worker.resources.limits.cpu"][2] == "resources wins, which the old chart used"
    assert result["worker.nodeSelector.a"][2] == "nodeSelector wins, which the old chart used"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"useHostNetwrok": True}, "useHostNetwrok: no such key; expected useHostNetwork"),
        ({"resources": {"limit": {"cpu": 1}}},
         "resources.limit: worker.resources.limit: Kubernetes has no such key; expected limits"),
        ({"a": 1, "b": 2, "c": 3, "d": 4, "e": [5, 6], "f": 7},
         "7 of 11 values are unknown: a, b, c and 4 more; expected a file of the old chart"),
        ({"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
         "volumeMounts[0]: no volume is called data; expected one of volumes, which has none"),
        ({"resources": {"claims": [None]}}, "an item of a list is null"),
        ({"master": {"args": ["mpirun -np 2 --npernode 4 a"]},
          "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}},
         "worker.resources.requests.cpu: the request 2 is above the limit 1"),
    ],
)  # fmt: skip
def test_misspelt_unknown_and_impossible_values_are_refused(values: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_old(**values)
    assert message in str(error.value)


def test_misspelt_number_of_workers_is_not_replaced_by_the_default() -> None:
    with pytest.raises(SpecError, match=r"worker\.nubmer: no such key; expected number, if that"):
        migrate_tree({"worker": {"nubmer": 8, "image": {"tag": "1"}}})

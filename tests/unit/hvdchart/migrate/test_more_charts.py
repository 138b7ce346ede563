"""Rare values of other charts and jobs: how a file is recognised, and keys without a use here."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ruamel.yaml import YAML

from hvdchart.errors import SpecError
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.kubernetes import value_problem
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.report import report_text
from hvdchart.migrate.script import script_tree
from hvdchart.spec.yaml_tree import parse
from hvdchart.values.schema import values_schema
from tests.unit.hvdchart.migrate.old_files import (
    PATHS,
    migrate_job,
    migrate_old,
    migrate_text,
    migrate_tree,
    mpijob,
    results,
)


def tree_of(name: str) -> Any:
    """The values of one of the files, to be changed."""
    return YAML(typ="safe").load(PATHS[name].read_text())


def test_keys_of_arena_that_mean_nothing_here_are_dropped_with_their_reasons() -> None:
    result = results(migrate_tree({**tree_of("arena.yaml"), "sshPort": 22, "modelName": "resnet"}))
    for key, reason in (
        ("sshPort", "the chart's default is 2222"),
        ("modelName", "a label of Arena"),
        ("trainingType", "the chart runs one kind of job"),
        ("useHostIPC", "ranks of a worker share its /dev/shm"),
    ):
        assert result[key] == ("dropped", "", reason), f"{key} has another reason"


def test_two_marks_are_enough_for_the_chart_of_aws() -> None:
    migration = migrate_text("resources: {gpu_nodes: 2, gpus_per_node: 8}")
    assert migration.source == "AWS's chart mpijob-horovod-tensorflow-gpu"
    assert migration.values["worker"]["number"] == 2


def test_three_marks_are_enough_for_the_chart_of_intel() -> None:
    text = "imageName: a\nimageTag: '1'\npvcName: data\nworkers: 2\n"
    with pytest.raises(SpecError, match="the key batchDenom is missing"):
        migrate_text(text)
    with pytest.raises(SpecError, match="too little else"):
        migrate_text(text.replace("pvcName", "claim"))


def test_reader_remembers_the_keys_that_a_rule_asks_for() -> None:
    reader = InputReader(parse(b"a: {b: [{c: 1}]}", "a"))
    assert reader.value_at("a", "b", 0, "c") == 1
    assert reader.value_at("a", "d") is None
    assert reader.known == {(): {"a"}, ("a",): {"b", "d"}, ("a", "b", 0): {"c"}}


def test_key_below_a_map_of_any_keys_that_the_old_chart_ignored_is_named() -> None:
    migration = migrate_old(worker={"podLabels": {"team": "a"}})
    reason = "the old chart ignored it; to use it now, set worker.podLabels.team in the new values"
    assert results(migration)["worker.podLabels.team"] == ("dropped", "", reason)


def test_value_is_quoted_in_its_own_letters() -> None:
    with pytest.raises(SpecError, match='got "zwölf"; expected a whole number'):
        migrate_text("worker: {number: zwölf}")


def test_keys_of_volcanos_tasks_are_dropped_with_their_reasons() -> None:
    tree = tree_of("volcano.yaml")
    tree["spec"] |= {"minSuccess": 1, "runningEstimate": "1h"}
    tree["spec"]["tasks"][1] |= {"minAvailable": 2, "partitionPolicy": {}, "maxRetry": 3}
    result = results(migrate_tree(tree))
    for key, reason in (
        ("minSuccess", "the gang is the master and all workers"),
        ("runningEstimate", "the master retries, and ends the run"),
        ("tasks[1].minAvailable", "the gang is the master and all workers"),
        ("tasks[1].maxRetry", "the master waits for its hosts, retries, and ends the run"),
    ):
        assert result[f"spec.{key}"] == ("dropped", "", reason), f"{key} has another reason"


def test_variables_that_volcanos_mpirun_does_not_export_stay_with_the_master() -> None:
    tree = tree_of("volcano.yaml")
    launcher = tree["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    launcher["env"].append({"name": "TOKEN", "value": "x"})
    assert "TOKEN" not in json.dumps(migrate_tree(tree).values.get("worker", {}))


def test_volume_with_the_new_name_of_one_that_the_chart_has_is_refused() -> None:
    volumes: Any = [{"name": name, "emptyDir": {}} for name in ("ssh", "user-ssh")]
    message = "the chart has a volume ssh of its own; expected no volume called user-ssh"
    with pytest.raises(SpecError, match=message):
        migrate_old(volumes=volumes)


def test_path_of_a_refused_item_begins_below_its_key() -> None:
    problem = value_problem(["podSecurityContext", "supplementalGroups"], [1, "a"])
    assert problem is not None
    assert problem.path == (1,)


def test_volume_that_gets_another_name_says_so() -> None:
    volumes: Any = [{"name": name, "emptyDir": {}} for name in ("ssh", "data")]
    result = results(migrate_old(volumes=volumes))
    for index, reason in (
        (0, "called user-ssh: the chart has a volume ssh of its own"),
        (1, "for master and workers"),
    ):
        assert result[f"volumes[{index}].name"] == ("changed", "volumes", reason)


def test_chart_with_the_largest_share_of_its_marks_is_the_nearest() -> None:
    with pytest.raises(SpecError, match="it has backoff_limit in common with AWS's chart"):
        migrate_text("backoff_limit: 1\nscaling: weak")


def test_script_of_the_greatest_length_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvdchart.migrate.script.MAX_BYTES", 10)
    _, statements = script_tree(b"a bc # defg"[:10], "<line>")
    assert len(statements) == 1
    with pytest.raises(SpecError, match="the file is too long; expected at most 10 bytes"):
        script_tree(b"a bc # defg", "<line>")


def test_values_after_one_that_is_handled_or_null_have_entries_too() -> None:
    migration = migrate_old(resources=None, zoom=1, useHostPID=False, other=2)
    result = results(migration)
    assert [result[key][0] for key in ("resources", "zoom", "useHostPID", "other")] == (
        ["dropped"] * 4
    )


def test_value_that_a_rule_forgets_after_one_that_it_drops_ends_the_migration() -> None:
    ledger = Ledger(parse(b"a: 1\nb: 2", "a"), values_schema())
    ledger.drop(("a",), "no use")
    ledger.change(("b",), ("worker", "env"))
    with pytest.raises(SpecError, match=r"b: migrate would lose it on the way to worker\.env"):
        ledger.close("a test")


def test_container_beside_the_main_one_cannot_mount_a_volume_of_the_chart() -> None:
    mounts = [{"name": "data", "mountPath": "/d"}, {"name": "ssh", "mountPath": "/s"}]
    with pytest.raises(SpecError) as error:
        migrate_job(worker_pod__initContainers=[
            {"name": "a", "image": "a", "volumeMounts": mounts}])  # fmt: skip
    assert "volumeMounts[1]: the chart has a volume of that name" in str(error.value)


def test_claims_that_the_chart_of_intel_made_are_to_be_created() -> None:
    tree = tree_of("intel-tlt.yaml")
    check = "create the claims tlt-data and tlt-output first: this chart makes none"
    assert check in migrate_tree(tree).checks
    for key in ("pvcScn", "pvcResources"):
        del tree[key]
    assert check not in migrate_tree(tree).checks


def test_variables_of_a_launcher_that_is_not_known_stay_its_own() -> None:
    migration = migrate_job(launcher_container__command=["run.sh"],
                            launcher_container__env=[{"name": "A", "value": "1"}])  # fmt: skip
    assert "env" not in migration.values["worker"]
    assert migration.values["master"]["env"] == [{"name": "A", "value": "1"}]


def test_misspelt_map_is_named_and_not_a_value_in_it() -> None:
    with pytest.raises(SpecError, match=r"^<old>:1:\d+: worker\.imaeg: no such key; expected ima"):
        migrate_tree({"worker": {"number": 2, "imaeg": {"tag": "1"}}})


def test_misspelt_key_beside_the_right_one_is_dropped() -> None:
    result = results(migrate_old(worker={"nubmer": 3}))
    reason = "neither the old chart nor this one has such a key"
    assert result["worker.nubmer"] == ("dropped", "", reason)


def test_worker_of_the_chart_of_intel_has_one_slot_unless_the_file_says_more() -> None:
    tree = tree_of("intel-tlt.yaml")
    del tree["slotsPerWorker"]
    worker = migrate_tree(tree).values["worker"]
    assert (worker["number"], worker["slots"]) == (4, 1)


def test_each_document_beside_the_job_is_named() -> None:
    text = f"kind: Secret\nmetadata: {{name: s}}\n---\n{json.dumps(mpijob())}\n---\na: 1\n"
    checks = [check.partition(":")[0] for check in migrate_text(text).checks]
    assert checks[:2] == ["the file also has Secret s", "the file also has a map without a kind"]


def test_words_after_the_command_of_nauta_are_dropped_with_their_reason() -> None:
    tree = tree_of("nauta.yaml")
    result = results(migrate_tree({**tree, "master": {"args": ["x"]}}))
    reason = "the pack's script ignored words after its own command"
    assert result["master.args[0]"] == ("dropped", "", reason)


def test_letters_that_nobody_sees_are_escaped() -> None:
    text = report_text(migrate_old(**{"a\u00a0b\\": 1}))
    assert "a\\xa0b\\" in text
    assert "a\\xa0b\\\\" not in text
    assert "\u00a0" not in text

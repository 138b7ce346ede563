"""What makes two renders the same run: the values that decide what is trained, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.values.merge import merge_values
from tests.chart.render import (
    Manifest,
    Values,
    helm_template,
    one,
    parse_manifests,
    render,
    run_settings,
)

BASE: Values = {
    "image": {"repository": "registry.example/team/resnet", "tag": "1.0"},
    "master": {"args": ["python", "train.py"]},
    "workerGroups": [{"name": "cpu", "number": 2}],
}
EMPTY_DIR: Values = {"volumes": [{"name": "output", "emptyDir": {}}]}
# The id and settings of BASE, and with EMPTY_DIR. With other ids, an upgrade of the chart would
# train every run again, and with other settings it would replace the active ones.
PUBLISHED = {"BASE": ("eb8449bdb5", "1b3fea214b"), "EMPTY_DIR": ("342ed0db38", "115fdfbc23")}
OTHER_COMMAND: Values = {"master": {"args": ["python", "other.py"]}}


def hashes(manifests: list[Manifest]) -> tuple[str, str]:
    """The run's id and settings, which the master and the labels have."""
    described = run_settings(manifests)
    job = one(manifests, "Job")["metadata"]["labels"]
    stateful_set = one(manifests, "StatefulSet")["metadata"]["labels"]
    assert job["hvdchart/run"] == stateful_set["hvdchart/run"] == described["id"]
    settings_hash = described["settings_hash"]
    assert job["hvdchart/settings-hash"] == settings_hash
    assert stateful_set["hvdchart/settings-hash"] == settings_hash
    return described["id"], settings_hash


def job_name(manifests: list[Manifest]) -> str:
    name: str = one(manifests, "Job")["metadata"]["name"]
    return name


def revision(values: Values) -> str:
    """The workers' revision, which the master waits for."""
    manifests = render(values)
    labels = one(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert run_settings(manifests)["groups"][0]["revision"] == labels["hvdchart/revision"]
    return str(labels["hvdchart/revision"])


@pytest.mark.parametrize(
    "values",
    [{"image": {"tag": "1.1"}}, {"agent": {"generation": 2}}, {"podLabels": {"team": "vision"}}],
    ids=["image", "keys", "label"],
)
@pytest.mark.promise("workers are replaced when their pods or keys change")
def test_workers_are_replaced_when_their_pods_or_keys_change(values: Values) -> None:
    assert revision(merge_values(BASE, values)) != revision(BASE)


@pytest.mark.parametrize(
    "values", [OTHER_COMMAND, {"worker": {"spares": 1}}], ids=["command", "spares"]
)
def test_workers_stay_with_another_command_or_spares(values: Values) -> None:
    assert revision(merge_values(BASE, values)) == revision(BASE)


def test_workers_stay_with_other_code() -> None:
    codes = ({"code": {"files": {"a": text}}} for text in "12")
    assert len({revision(merge_values(BASE, values)) for values in codes}) == 1


def render_newer(newer: Path, values: Values) -> list[Manifest]:
    done = helm_template(values, chart=newer)
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


def test_newer_chart_renders_the_same_run(newer: Path) -> None:
    before = render(BASE)
    after = render_newer(newer, BASE)
    assert before != after
    assert hashes(before) == hashes(after)


def test_newer_chart_renders_another_job_of_the_run(newer: Path) -> None:
    """Kubernetes would refuse a change of the Job's pods."""
    assert job_name(render(BASE)) != job_name(render_newer(newer, BASE))


WITHOUT_RECORD: Values = {**BASE, "serviceAccount": {"create": False}}


def test_without_a_record_a_newer_chart_renders_no_other_job(newer: Path) -> None:
    """The API server refuses its changed pods, where another Job would train again."""
    assert job_name(render(WITHOUT_RECORD)) == job_name(render_newer(newer, WITHOUT_RECORD))


def test_without_a_record_another_command_is_another_job() -> None:
    other = render(merge_values(WITHOUT_RECORD, OTHER_COMMAND))
    assert job_name(render(WITHOUT_RECORD)) != job_name(other)


@pytest.mark.parametrize(("values", "name"), [({}, "BASE"), (EMPTY_DIR, "EMPTY_DIR")])
def test_hashes_of_a_run_are_those_that_were_published(values: Values, name: str) -> None:
    assert hashes(render(merge_values(BASE, values))) == PUBLISHED[name], (
        "this chart would train finished runs again, or replace active ones: leave a default as it "
        "was, and let a new value be empty or false by default (ADR 10)"
    )


POOL: Values = {"worker": {"nodeSelector": {"pool": "gpu"}}}
PULLED: Values = {"pullPolicy": "Always"}
STAGED: Values = {
    **EMPTY_DIR,
    "volumeMounts": [{"name": "output", "mountPath": "/data"}],
    "staging": {"path": "/data/set", "command": ["fetch"]},
}
CLEARED: Values = {"name": "cpu", "number": 2, "nodeSelector": None}
# What the user writes counts, also where it is empty or false, and whether it decides the training.
COMPARED: dict[str, tuple[bool, Values, Values]] = {
    "variable": (
        True,
        {"worker": {"env": [{"name": "DEBUG", "value": "false"}]}},
        {"worker": {"env": [{"name": "DEBUG", "value": ""}]}},
    ),
    "label of a node": (True, {}, {"worker": {"nodeSelector": {"spot": "false"}}}),
    "file": (True, {"code": {"files": {"a": "1"}}}, {"code": {"files": {"a": "1", "b": ""}}}),
    "affinity of the user": (True, {}, {"worker": {"affinity": {"podAntiAffinity": {}}}}),
    "cleared for a group": (True, POOL, {**POOL, "workerGroups": [CLEARED]}),
    "field of the pods": (False, {}, {"worker": {"podSpec": {"hostUsers": False}}}),
    "no modules in advance": (False, {}, {"launch": {"preload": []}}),
    "pull policy of the workers": (False, {}, {"worker": {"image": PULLED}}),
    "pull policy of a group": (
        False,
        {"workerGroups": [{"name": "cpu"}]},
        {"workerGroups": [{"name": "cpu", "image": PULLED}]},
    ),
    "pull policy of the master": (False, {}, {"master": {"image": PULLED}}),
    "pull policy of staging": (False, STAGED, merge_values(STAGED, {"staging": {"image": PULLED}})),
    "repository of the master": (True, {}, {"master": {"image": {"repository": "a"}}}),
}
SAME: dict[str, Values] = {
    "empty defaults": {"image": {"digest": ""}, "network": {"interface": ""}, "volumes": []},
    "empty keys of an image": {"worker": {"image": {"tag": "", "digest": None}}},
    "cleared default": {"worker": {"env": None}, "staging": {"command": []}, "hostNetwork": False},
}


@pytest.mark.parametrize("case", COMPARED)
def test_what_the_user_writes_is_compared_as_it_is(case: str) -> None:
    decides, *values = COMPARED[case]
    before, after = (hashes(render(merge_values(BASE, overrides))) for overrides in values)
    assert (before[0] != after[0]) is decides
    assert before[1] != after[1]


@pytest.mark.parametrize("case", SAME)
def test_empty_default_that_is_written_out_changes_nothing(case: str) -> None:
    assert hashes(render(merge_values(BASE, SAME[case]))) == hashes(render(BASE))

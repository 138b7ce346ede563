"""tune: the settings that it tries, its temporary run, and the block that it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec, read_spec
from hvdchart.spec.overlays import merge_specs
from hvdchart.spec.yaml_tree import parse
from hvdchart.tune.grid import (
    Grid,
    Measurement,
    Search,
    choose_best,
    list_settings,
    parse_result,
    tuning_text,
)
from hvdchart.tune.in_pod import driver as tune_driver
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import job, pod, terminated

OWN = {"OMP_NUM_THREADS": "28", "TF_NUM_INTRAOP_THREADS": "26", "TF_NUM_INTEROP_THREADS": "2"}


def spec_text(nodes: str) -> str:
    head = "apiVersion: hvdchart/v1\nname: run\nimage: {repository: a}\n"
    return f"{head}nodes: [{nodes}]\ntrain: {{command: [a]}}\n"


def planned(
    nodes: str = "{name: x, count: 16, sockets: 2, coresPerSocket: 28, threadsPerCore: 2}",
) -> Plan:
    return make_plan(parse_spec(spec_text(nodes).encode()))


def test_settings_begin_with_the_plans_own() -> None:
    settings = list_settings(planned(), Grid())
    assert settings[0] == OWN
    assert len({json.dumps(setting, sort_keys=True) for setting in settings}) == len(settings) == 8
    assert {setting["TF_NUM_INTRAOP_THREADS"] for setting in settings} == {"14", "26", "28", "56"}
    settings = list_settings(planned("{name: x, count: 1, coresPerSocket: 8}"), Grid())
    assert {setting["TF_NUM_INTRAOP_THREADS"] for setting in settings} == {"4", "6", "8"}


def measured(own: tuple[float, ...], other: tuple[float, ...]) -> list[Measurement]:
    changed = {**OWN, "TF_NUM_INTRAOP_THREADS": "28"}
    return [Measurement(OWN, own, ()), Measurement(changed, other, ("crashed",))]


def test_best_setting_beats_the_plan_by_more_than_noise_in_turns() -> None:
    better = measured((10, 10.5, 9), (12, 12.5, 2))
    assert choose_best(better) is better[1]
    noise = measured((10, 14, 10), (10.1, 14.2, 10.1))
    assert choose_best(noise) is noise[0]
    drifting = measured((10, 20, 30, 40, 50), (11, 22, 33, 44, 55))
    assert choose_best(drifting) is drifting[1], "each turn is compared with itself"
    silent = measured((), (5,))
    assert choose_best(silent) is silent[1]
    shorter = measured((10, 10), (12,))
    assert choose_best(shorter) is shorter[1], "a run without a speed leaves a turn incomplete"
    failed = measured((10,), ())
    assert choose_best(failed) is failed[0]


def test_tuning_block_merges_into_the_spec() -> None:
    first = measured((10.0,), (12.0,))
    text = tuning_text(Search(first, first), "run.spec.yaml")
    assert "The best setting is +20.0% faster than the plan's." in text
    assert "# The faster ones again, in turn with the plan's:\n#       10.00  OMP" in text
    base = "{name: x, count: 1, sockets: 2, coresPerSocket: 28, threadsPerCore: 2}"
    trees = [parse(spec_text(base).encode(), "base"), parse(text.encode(), "tuning")]
    env = make_plan(read_spec(merge_specs(trees))).groups[0].env
    assert env["TF_NUM_INTRAOP_THREADS"] == "28"
    again = measured((10.0,), (10.0,))
    assert "keep the plan's" in tuning_text(Search(first, again), "x")
    failed = measured((10.0,), ())
    text = tuning_text(Search(failed, failed[:1]), "x")
    assert ("failed" in text, "again" in text) == (True, False)
    silent = measured((), (5.0,))
    assert "faster than" not in tuning_text(Search(silent, silent), "x")


@pytest.mark.slow
def test_driver_runs_the_command_with_each_environment(tmp_path: Path) -> None:
    """With a launcher that starts one rank here, after four words of its own."""
    launcher = tmp_path / "mpirun"
    launcher.write_text('#!/bin/sh\nshift 4\nexec "$@"\n')
    launcher.chmod(0o755)
    rank = (
        "import os, json; n = int(os.environ['N']); assert n, 'x' * 900; "
        "print('RESULT', json.dumps({'imagesPerSecond': n * 2}))"
    )
    job = {"command": [sys.executable, "-c", rank], "runs": [{"N": "4"}, {"N": "0"}]}
    done = subprocess.run(
        [sys.executable, tune_driver.__file__, json.dumps(job), launcher, *"abcd"],
        env={**os.environ, "N": "9"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = (parse_result(line) for line in done.stdout.splitlines())
    assert first == (0, 8.0, "")
    assert second is not None
    assert second[1] is None
    assert second[2].startswith("exit code 1: xxx")
    assert len(second[2]) == len("exit code 1: ") + 800, "the end of the output"


pytestmark = pytest.mark.timeout(120)


def measure(cluster: FakeCluster, helm: StubProgram, *results: str) -> None:
    """A tuning run that prints these lines and ends."""
    answer_as(helm, "hvd-tune")
    labels = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": "hvd-tune"}
    run, master = job(("Complete", "", "")), pod("hvd-tune-master-1-a", "master", terminated(0))
    run["metadata"]["labels"] = labels
    master["metadata"]["labels"] = {**labels, "app.kubernetes.io/component": "master"}
    cluster.put("jobs", run)
    cluster.put("pods", master)
    cluster.log("hvd-tune-master-1-a", *results, end=True)


def result(run: int, speed: float | None, error: str = "") -> str:
    return "TUNE " + json.dumps({"run": run, "speed": speed, "error": error})


@pytest.mark.slow
def test_tune_measures_in_a_run_and_writes_the_best_setting(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    # Runs of the plan's own setting and of another, which is faster; both are measured again.
    measure(
        fake_cluster, helm, "hello", *(result(n, 10.0 if n % 2 == 0 else 20.0) for n in range(4))
    )
    target = tmp_path / "tuning.yaml"
    grid = ["--omp", "3", "--intra", "1", "--inter", "1", "--kmp-blocktime", "0"]
    options = ["--repeat", "2", "--confirm", "2", "--command", "bench 'a b'", "--workers", "1"]
    done = hvdchart("tune", spec, *grid, *options, "-w", target)
    assert done.code == 0, done.errors
    assert done.errors.startswith("2 settings, 2 runs each, on 1 worker\n1/4     10.00  OMP")
    assert "1 faster setting: measuring again, in turn with the plan's\n" in done.errors
    assert "kmpBlocktime: 0" in target.read_text()
    assert "hvdchart tune run.spec.yaml`" in target.read_text()
    assert "+100.0% faster" in target.read_text()
    assert helm.commands().count("uninstall") == 2
    installed, again = (json.loads(c.input) for c in helm.calls if c.arguments[0] == "upgrade")
    assert installed["worker"]["number"] == 1
    driven = json.loads(installed["master"]["args"][-2])
    assert json.loads(again["master"]["args"][-2]) == driven, "the plan's and the only other one"
    assert driven["command"] == ["bench", "a b"]
    assert len(driven["runs"]) == 4
    assert driven["runs"][1] == {
        "OMP_NUM_THREADS": "3", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
        "KMP_BLOCKTIME": "0",
    }  # fmt: skip


@pytest.mark.slow
def test_tune_without_a_result_uninstalls_and_has_the_last_line(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    measure(fake_cluster, helm, "no module named tensorflow")
    done = hvdchart("tune", spec)
    assert done.code == 8
    assert done.errors.endswith(
        "hvd-tune ended without a measurement; its last line: "
        "hvd-tune-master-1-a: no module named tensorflow\n"
    )
    assert helm.commands()[-1] == "uninstall"

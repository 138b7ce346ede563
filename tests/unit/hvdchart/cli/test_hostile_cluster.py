"""What a cluster says may be a stranger's: escapes that control a terminal, records, garbage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdchart.errors import ClusterError
from hvdchart.run.state.progress import read_progress
from hvdchart.run.state.ranks import pod_of, run_of
from hvdchart.run.state.release import Release
from hvdchart.run.state.stalls import read_stall
from hvdchart.run.state.status_text import list_report, status_report
from hvdchart.run.state.view import RunView
from tests.support.fakes import faults
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import (
    CREATING,
    FAILED,
    JOB,
    MASTER,
    STATEFUL_SET,
    event,
    job,
    pod,
    terminated,
)
from tests.unit.hvdchart.played_runs import play_run

pytestmark = pytest.mark.timeout(120)
# It sets the terminal's title, clears the screen, and writes a line of its own.
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\nteam  other  finished"
# Texts of a record.
NUMBERS = [
    "x",
    "",
    "-1",
    "9" * 5000,
    "1e999",
    "\u0661",
    "0-99999999999",
    "5-",
    "0x10",
    "1" * 400_000,
    EVIL,
]
WORKERS = ["[", "[" * 100_000, "3", '"0"', "[1]", '{"hvd-worker": 3}', '{"hvd-worker": "x"}']


def as_hosts(text: str) -> str:
    return json.dumps({"hvd-worker": text})


def is_clean(text: str) -> bool:
    return all(character.isprintable() or character in "\n\t" for character in text)


@pytest.fixture
def hostile(fake_cluster: FakeCluster) -> FakeCluster:
    """A failed run of which a stranger has written every text."""
    failed = pod(f"{JOB}-x", "master", terminated(1, EVIL), phase="Failed")
    play_run(fake_cluster, FAILED, failed)
    fake_cluster.log(f"{JOB}-x", "the log has \x1b[2J")
    stuck = pod("hvd-worker-0", "worker", {"waiting": {"reason": "ErrImagePull", "message": EVIL}})
    stuck["spec"]["nodeName"] = f"node{EVIL}"
    fake_cluster.put("pods", stuck)
    fake_cluster.put("events", event("hvd-worker-0", f"Pod{EVIL}", f"Failed{EVIL}", EVIL))
    return fake_cluster


@pytest.mark.parametrize(
    "words",
    [["status", "hvd"], ["list"], ["events", "hvd"], ["wait", "hvd"], ["status", "x"]],
    ids=" ".join,
)
@pytest.mark.promise("no command prints what controls a terminal")
def test_no_command_prints_what_controls_a_terminal(
    hvdchart: Command, hostile: FakeCluster, words: list[str]
) -> None:
    done = hvdchart(*words)
    assert is_clean(done.output + done.errors)
    lines = (done.output + done.errors).splitlines()
    assert not any(line.startswith("team  other") for line in lines)


def test_message_of_the_api_server_cannot_control_a_terminal(
    hvdchart: Command, hostile: FakeCluster
) -> None:
    hostile.refusals["pods list"] = (500, f"no{EVIL}")
    assert is_clean(hvdchart("status", "hvd").errors)


@pytest.mark.parametrize("key", ["maximum", "slots"])
def test_a_run_with_more_workers_or_ranks_than_can_be_listed_is_refused(key: str) -> None:
    run = job()
    variable = run["spec"]["template"]["spec"]["containers"][0]["env"][0]
    described = json.loads(variable["value"])
    groups = [{**described["groups"][0], key: 10**12}]
    variable["value"] = json.dumps({**described, "groups": groups})
    with pytest.raises(ClusterError, match=run["metadata"]["name"]):
        run_of(run)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([10**400, "9" * 5000, EVIL]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
STEPS = ["step", "steps", "loss", "samplesPerSecond", "secondsLeft", "time"]
STALL = ["rank", "worker", "what", "since", "place"]
RECORDS = st.fixed_dictionaries(
    {"progress": (anything | st.dictionaries(st.sampled_from(STEPS), anything)).map(json.dumps)},
    optional={
        "stall": (anything | st.dictionaries(st.sampled_from(STALL), anything)).map(json.dumps),
        **dict.fromkeys(["attempts", "renewed", "state", "reason"], st.sampled_from(NUMBERS)),
        "workers": st.sampled_from(WORKERS)
        | st.sampled_from(NUMBERS).map(as_hosts)
        | anything.map(json.dumps),
    },
)


@pytest.mark.fuzz
@given(record=RECORDS, is_current=st.booleans(), groups=st.sampled_from([1, 2]))
@pytest.mark.promise("any record is read")
def test_any_record_is_read(record: dict[str, str], is_current: bool, groups: int) -> None:
    """Anybody may write it who may edit ConfigMaps."""
    run = job(groups=groups)
    record = {**record, "job": JOB if is_current else "other"}
    current = RunView(Release("hvd", [run], [STATEFUL_SET], [MASTER], [], record)).status
    shown = [*status_report(current, "team"), *list_report([("team", current)])]
    assert max(map(len, shown)) < 5000
    assert pod_of(run_of(run), "0", record).startswith("hvd-worker-")
    assert RunView(Release("hvd", [], [STATEFUL_SET], [], [], record)).status.name == "hvd"
    read = read_progress(record)
    assert read is None or len(read.text()) < 200
    stall = read_stall(record)
    assert stall is None or (len(stall.text()) < 1000 and stall.text().isprintable())


@pytest.mark.parametrize("answer", ["[" * 100_000, "[]", "{}", '{"items": [3]}', '{"items": 3}'])
def test_garbage_of_the_api_server_is_one_message(
    hvdchart: Command, fake_cluster: FakeCluster, answer: str
) -> None:
    fake_cluster.fail("GET", "core/pods", faults.text(200, answer))
    done = hvdchart("status", "hvd")
    assert done.code == 7
    assert "the answer is not Kubernetes' own" in done.errors


@pytest.mark.slow
@pytest.mark.parametrize("word", ["list", "--help"])
def test_a_full_disk_is_reported_in_one_line(fake_cluster: FakeCluster, word: str) -> None:
    play_run(fake_cluster, job(), pod(f"{JOB}-x", "master", CREATING))
    command = [sys.executable, "-m", "hvdchart", word]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    expected = "hvdchart: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (5, expected)

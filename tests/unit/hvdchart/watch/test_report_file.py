"""The report of a run: one file, without secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hvdchart.watch.masking import MASK
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import JOB, event

pytestmark = pytest.mark.timeout(120)
# One is known by its name in the values, and one by its form; test_masking.py tries the others.
PASSWORD = "correct-horse-battery"
TOKEN = "hf_" + "Ab3" * 10
VALUES = {
    "worker": {
        "number": 2,
        "env": [
            {"name": "WANDB_API_KEY", "value": PASSWORD},
            {"name": "MODEL", "value": "resnet50"},
        ],
    },
    "master": {"args": ["python", "train.py", "--epochs", "3"]},
}


@pytest.fixture
def report(
    hvdchart: Command, finished: FakeCluster, helm: StubProgram, tmp_path: Path
) -> dict[str, Any]:
    """What the file of a run has whose values, logs, events and record have secrets."""
    helm.answer("get", json.dumps(VALUES))
    finished.log(f"{JOB}-x", f"login with {PASSWORD}", f"token: {TOKEN}", "step 9 tokens: 4096")
    finished.log(f"{JOB}-x", f"\x1b[1mAuthorization: Bearer {PASSWORD}\x1b[0m", end=True)
    finished.log("hvd-worker-0", f"using {TOKEN}", end=True)
    finished.put("events", event("hvd-worker-0", "Pod", "Failed", f"pull with {PASSWORD}"))
    # A line and a mark are cut within these secrets.
    finished.log("hvd-worker-1", "x" * 1990 + f" {PASSWORD}", end=True)
    long = "y" * 265 + f" {PASSWORD}"
    finished.put("events", event("hvd-worker-1", "Pod", "Failed", long))
    data = {"job": JOB, "state": "Finished", "reason": f"cannot reach s3://a:{PASSWORD}@b"}
    finished.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": data})
    file = tmp_path / "report.html"
    assert hvdchart("report", "hvd", "-w", file).code == 0
    text = file.read_text()
    assert PASSWORD[:4] not in text
    assert TOKEN not in text
    data_of_page = re.search(r'id="data">(.*)</script>', text)
    assert data_of_page
    content: dict[str, Any] = json.loads(data_of_page[1])
    return content


def test_a_report_has_what_the_run_was_read_from(report: dict[str, Any]) -> None:
    titles = [section["title"] for section in report["sections"]]
    assert titles[:2] == [f"Log of {JOB}-x (master)", "Log of hvd-worker-0 (worker)"]
    for title in ("Events", "Values of the release", "Record of the run", "Versions"):
        assert title in titles
    assert report["view"]["state"] == "finished"


@pytest.mark.promise("a report masks secrets and nothing else")
def test_a_report_masks_secrets_and_nothing_else(report: dict[str, Any]) -> None:
    texts = {section["title"]: section["text"] for section in report["sections"]}
    values = texts["Values of the release"]
    assert values.count(MASK) == 1
    for kept in ("resnet50", "--epochs", "number: 2"):
        assert kept in values
    log = texts[f"Log of {JOB}-x (master)"]
    assert "first\nlast\n" in log
    assert "step 9 tokens: 4096" in log


def test_a_report_without_helm_says_so(
    hvdchart: Command, finished: FakeCluster, programs: Path, tmp_path: Path
) -> None:
    for worker in ("hvd-worker-0", "hvd-worker-1"):
        finished.log(worker, end=True)
    file = tmp_path / "report.html"
    assert hvdchart("report", "hvd", "-w", file).code == 0
    assert "cannot be read: no program 'helm' is on PATH" in file.read_text()


def test_a_report_of_no_run_is_refused(
    hvdchart: Command, fake_cluster: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    assert hvdchart("report", "hvd", "-w", file).code == 7
    assert not file.exists()

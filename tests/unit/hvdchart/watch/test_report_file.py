"""The report of a run: one file, without secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hvdchart.watch.masking import MASK, Masker, is_secret_name
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import JOB, event

pytestmark = pytest.mark.timeout(120)
# Planted in the values, the log, the events and the record.
PASSWORD = "correct-horse-battery"
TOKEN = "hf_" + "Ab3" * 10
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"
CLOUD = "AKIA" + "IOSFODNN7EXAMPLE"
SECRETS = [PASSWORD, TOKEN, "MIIEow", CLOUD, "hunter2hunter2", "swordfish-9"]
VALUES = {
    "worker": {
        "number": 2,
        "env": [
            {"name": "WANDB_API_KEY", "value": PASSWORD},
            {"name": "MODEL", "value": "resnet50"},
            {"name": "SOURCE", "value": f"https://user:{PASSWORD}@data.example/x"},
            {"name": "MLFLOW", "valueFrom": {"secretKeyRef": {"name": "tracker", "key": "t"}}},
        ],
    },
    "master": {"args": ["python", "train.py", "--hub-token", "swordfish-9", "--epochs", "3"]},
    "results": {"command": ["sh", "-c", f"AWS_ACCESS_KEY_ID={CLOUD} aws s3 cp"]},
    "extraObjects": [
        {"kind": "Secret", "metadata": {"name": "own"}, "stringData": {"a": "hunter2hunter2"}},
        {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"id_rsa": KEY}},
    ],
    "code": {"archive": "QUJD" * 9000},
}


@pytest.fixture
def report(
    hvdchart: Command, finished: FakeCluster, helm: StubProgram, tmp_path: Path
) -> dict[str, Any]:
    """What the file of a run has in which secrets were planted everywhere."""
    helm.answer("get", json.dumps(VALUES))
    finished.log(f"{JOB}-x", f"login with {PASSWORD}", f"token: {TOKEN}", "step 9 tokens: 4096")
    finished.log(f"{JOB}-x", f"\x1b[1mAuthorization: Bearer {PASSWORD}\x1b[0m", end=True)
    finished.log("hvd-worker-0", f"using {CLOUD}", end=True)
    finished.put("events", event("hvd-worker-0", "Pod", "Failed", f"pull with {PASSWORD}"))
    # A line and a mark are cut within these secrets.
    finished.log("hvd-worker-1", "x" * 1990 + f" {PASSWORD}", end=True)
    long = "y" * 265 + f" {PASSWORD}"
    finished.put("events", event("hvd-worker-1", "Pod", "Failed", long))
    data = {"job": JOB, "state": "Finished", "results": f"cannot reach s3://a:{PASSWORD}@b"}
    finished.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": data})
    file = tmp_path / "report.html"
    assert hvdchart("report", "hvd", "-w", file).code == 0
    text = file.read_text()
    assert not any(secret in text for secret in [*SECRETS, PASSWORD[:4]])
    found = re.search(r'id="data">(.*)</script>', text)
    assert found
    content: dict[str, Any] = json.loads(found[1])
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
    assert values.count(MASK) >= 6
    for kept in ("resnet50", "name: tracker", "--epochs", "number: 2", "36000 characters"):
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


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("WANDB_API_KEY", True),
        ("HF_TOKEN", True),
        ("dbPassword", True),
        ("aws_secret_access_key", True),
        ("GITHUB_PAT", True),
        ("auth", True),
        ("KEYBOARD", False),
        ("PATH", False),
        ("monkey", False),
        ("AUTHOR", False),
        ("MASTER_PORT", False),
    ],
)
def test_secrets_are_known_by_their_names(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=abc123 next", f"password={MASK} next"),
        ("'api_key': 'abcdef'", f"'api_key': '{MASK}'"),
        ("postgres://me:pw@db/x", f"postgres://{MASK}@db/x"),
        ("tokens: 4096, 12.5 tokens/s", "tokens: 4096, 12.5 tokens/s"),
        ("--my-token=abcdef --tokens=4096", f"--my-token={MASK} --tokens=4096"),
        ("--token abcdef --epochs 3", f"--token {MASK} --epochs 3"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abc-_x", MASK),
        ("the key step of 3", "the key step of 3"),
        ("Authorization: Token abcdef", f"Authorization: Token {MASK}"),
        ("authorization=ApiKey abcdef", f"authorization=ApiKey {MASK}"),
        ("password='two words, one' next", f"password='{MASK}' next"),
        ('os.environ["HF_TOKEN"] = "abcdef"', f'os.environ["HF_TOKEN"] = "{MASK}"'),
        ("passphrase: abcdef, pass=abcdef", f"passphrase: {MASK}, pass={MASK}"),
        ("AccountKey=abcdef;Suffix=x", f"AccountKey={MASK};Suffix=x"),
        ("https://a/b?sv=1&sig=abcdef", f"https://a/b?sv=1&sig={MASK}"),
        ("https://a/b?X-Amz-Signature=abcdef", f"https://a/b?X-Amz-Signature={MASK}"),
        ("Set-Cookie: sid=abcdef; path=/", f"Set-Cookie: {MASK}; path=/"),
        ("--auth abcdef --author ann", f"--auth {MASK} --author ann"),
        ("dckr_pat_abcdefghijkl", MASK),
        ("npm_config_registry_of_team", "npm_config_registry_of_team"),
        ("signature: f(x), compass=3, passed: 12", "signature: f(x), compass=3, passed: 12"),
    ],
)
def test_secrets_are_known_by_their_form(text: str, expected: str) -> None:
    assert Masker().text(text) == expected


def test_all_values_of_a_map_with_a_secrets_name_are_secrets() -> None:
    document = {"credentials": {"db": {"user": "abcdef"}}, "tokens": [{"name": "a", "value": "b"}]}
    masked = {"credentials": {"db": {"user": MASK}}, "tokens": [{"name": "a", "value": MASK}]}
    assert Masker().document(document) == masked


@pytest.mark.parametrize(
    "document",
    [
        {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        {"tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        {"topologyKey": "kubernetes.io/hostname"},
        {"secret": {"secretName": "mine", "items": [{"key": "a", "path": "b"}]}},
    ],
)
def test_keys_of_labels_taints_and_files_are_no_secrets(document: dict[str, Any]) -> None:
    masker = Masker()
    assert masker.document(document) == document
    assert masker.text("Insufficient nvidia.com/gpu") == "Insufficient nvidia.com/gpu"


@pytest.mark.parametrize("part", ["x", "a.", "token", "--key", "x-secret-", "&x-sig", "pass'"])
def test_a_long_line_is_masked_within_the_time_of_a_test(part: str) -> None:
    assert Masker().text(part * 100_000).startswith(part)

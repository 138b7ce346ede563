"""The code of the page on trackers, in pods: two attempts of a run are one tracked run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from devtools.common.markdown import code_blocks
from devtools.common.repository import DOCS
from tests.e2e.packages import download_wheels
from tests.support.namespace import Namespace
from tests.support.volumes import on_node

# Their packages are 0.1 GB, and no file locks them.
pytestmark = pytest.mark.rare

# Rank 0 logs the losses of three steps. The first attempt fails after its last one.
TRAIN = """
import os
import time
if os.environ["RANK"] == "0":
    import TRACKER
    first = int(os.environ["HVD_ATTEMPT"]) == 1
CODE
    for step in (0, 1, 2) if first else (3, 4, 5):
        LOG
    if first:
        raise SystemExit("the first attempt fails")
    END
"""
# Trains with a script, its packages and variables, over two attempts.
Train = Callable[[str, str, dict[str, str]], None]


def script(tracker: str, log: str, end: str) -> str:
    """A script that logs with the code which the page has for this tracker."""
    (code,) = (
        text for text in code_blocks(DOCS / "watching.md", "python") if f"{tracker}." in text
    )
    indented = "\n".join(f"    {line}" for line in code.splitlines())
    text = TRAIN.replace("TRACKER", tracker).replace("CODE", indented)
    return text.replace("LOG", log).replace("END", end)


@pytest.fixture
def train(privileged: Namespace, python_image: dict[str, str], node_folder: Path) -> Train:
    """Trains on two workers, which write to the folder of the node as /output."""
    folders = on_node(download_wheels("trackers"), "wheels"), on_node(node_folder, "output")
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}

    def train(text: str, requirements: str, variables: dict[str, str]) -> None:
        env = {**index, **variables}
        values = {
            "image": python_image,
            "launch": {"mode": "direct"},
            "code": {"files": {"train.py": text, "requirements.txt": requirements}},
            "worker": {"env": [{"name": name, "value": value} for name, value in env.items()]},
            "master": {"args": ["python3", "train.py"], "backoffLimit": 1},
            **{key: [entry for written in folders for entry in written[key]] for key in folders[0]},
        }
        privileged.train("hvd", values)

    return train


def test_two_attempts_are_one_run_of_mlflow(train: Train, node_folder: Path) -> None:
    text = script("mlflow", "mlflow.log_metric('loss', 1 / (step + 1), step)", "mlflow.end_run()")
    # The parts of the package `mlflow` that log to a database.
    packages = "mlflow-skinny\nsqlalchemy\nalembic\n"
    train(text, packages, {"MLFLOW_TRACKING_URI": "sqlite:////output/mlflow.db"})
    with closing(sqlite3.connect(node_folder / "mlflow.db")) as database:
        ((run, status),) = database.execute("SELECT run_uuid, status FROM runs")
        tags = dict(database.execute("SELECT key, value FROM tags WHERE run_uuid = ?", [run]))
        losses = [*database.execute("SELECT key, step FROM latest_metrics")]
    assert status == "FINISHED"
    assert tags["attempt"] == "2"
    assert losses == [("loss", 5)]


def test_two_attempts_have_one_id_of_wandb_offline(train: Train, node_folder: Path) -> None:
    text = script("wandb", "wandb.log({'loss': 1 / (step + 1)}, step=step)", "wandb.finish()")
    train(text, "wandb", {"WANDB_MODE": "offline", "WANDB_DIR": "/output"})
    files = sorted(node_folder.glob("wandb/offline-run-*/run-resnet50-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1

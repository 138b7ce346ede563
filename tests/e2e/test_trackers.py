"""The code of the page on trackers, in pods: two attempts of a run are one tracked run."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from devtools.common.waiting import wait_until
from devtools.localkube.instance import current
from tests.e2e.packages import installed, wheels
from tests.support.namespace import Namespace, Values
from tests.support.pages import blocks
from tests.support.volumes import claimed_folder, on_node

# Their packages are 0.3 GB, and no file locks them.
pytestmark = pytest.mark.rare

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = "trackers"
USER = "trainer"
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


def script(tracker: str, log: str, end: str) -> str:
    """A script that logs with the code which the page has for this tracker."""
    (code,) = (text for text in blocks(DOCS / "watching.md", "python") if f"{tracker}." in text)
    indented = "\n".join(f"    {line}" for line in code.splitlines())
    text = TRAIN.replace("TRACKER", tracker).replace("CODE", indented)
    return text.replace("LOG", log).replace("END", end)


def values(image: dict[str, str], tracker: str, text: str, env: dict[str, str]) -> Values:
    """Two workers that get the tracker from requirements.txt, and its key from a Secret."""
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels", **env}
    return {
        "image": image,
        "launch": {"mode": "direct"},
        "code": {"files": {"train.py": text, "requirements.txt": tracker}},
        "worker": {
            "env": [{"name": name, "value": value} for name, value in index.items()],
            "envFrom": [{"secretRef": {"name": "tracker"}}],
        },
        "master": {"args": ["python3", "train.py"], "backoffLimit": 1},
        "volumes": [{"name": "wheels", "persistentVolumeClaim": {"claimName": "wheels"}}],
        "volumeMounts": [{"name": "wheels", "mountPath": "/wheels", "readOnly": True}],
    }


@dataclass(frozen=True)
class Server:
    """A tracking server of MLflow that asks for a password, on an address that pods reach."""

    url: str
    password: str

    def post(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the server answers to a call of its REST API."""
        headers = urllib3.make_headers(basic_auth=f"{USER}:{self.password}")
        url = f"{self.url}/api/2.0/mlflow/{call}"
        answer = urllib3.request("POST", url, json=body, headers=headers, timeout=30)
        assert answer.status == 200, answer.data
        return dict(answer.json())


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[Server]:
    address = str(current().gateway_ip)
    with socket.create_server((address, 0)) as found:
        port = found.getsockname()[1]
    password = secrets.token_urlsafe(16)
    settings = tmp_path / "auth.ini"
    settings.write_text(
        "[mlflow]\n"
        "default_permission = EDIT\n"
        f"database_uri = sqlite:///{tmp_path}/users.db\n"
        f"admin_username = {USER}\n"
        f"admin_password = {password}\n"
    )
    folder = installed(PACKAGES)
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"]
    command += ["--host", address, "--port", str(port), "--workers", "1", "--allowed-hosts", "*"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "MLFLOW_AUTH_CONFIG_PATH": str(settings),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    log = tmp_path / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:

        def serves() -> bool:
            assert process.poll() is None, log.read_text()
            with socket.socket() as probe:
                return probe.connect_ex((address, port)) == 0

        wait_until(serves, 120, "MLflow serves")
        yield Server(f"http://{address}:{port}", password)
    finally:
        process.terminate()
        process.wait(30)


def test_two_attempts_are_one_run_of_an_mlflow_server(
    namespace: Namespace, python_image: dict[str, str], mlflow_server: Server
) -> None:
    text = script("mlflow", "mlflow.log_metric('loss', 1 / (step + 1), step)", "mlflow.end_run()")
    env = {"MLFLOW_TRACKING_URI": mlflow_server.url}
    namespace.kubectl(
        "create",
        "secret",
        "generic",
        "tracker",
        f"--from-literal=MLFLOW_TRACKING_USERNAME={USER}",
        f"--from-literal=MLFLOW_TRACKING_PASSWORD={mlflow_server.password}",
    )
    with claimed_folder(namespace, "wheels", wheels(PACKAGES)):
        log = namespace.train("hvd", values(python_image, "mlflow-skinny", text, env))
    assert mlflow_server.password not in log
    (experiment,) = (
        found["experiment_id"]
        for found in mlflow_server.post("experiments/search", {"max_results": 10})["experiments"]
        if found["name"] == "resnet50"
    )
    (run,) = mlflow_server.post("runs/search", {"experiment_ids": [experiment]})["runs"]
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert tags["attempt"] == "2"
    assert run["info"]["status"] == "FINISHED"
    (loss,) = run["data"]["metrics"]
    assert (loss["key"], loss["step"]) == ("loss", 5)


@pytest.mark.usefixtures("privileged")
def test_two_attempts_have_one_id_of_wandb_offline(
    namespace: Namespace, python_image: dict[str, str], node_folder: Path
) -> None:
    text = script("wandb", "wandb.log({'loss': 1 / (step + 1)}, step=step)", "wandb.finish()")
    env = {"WANDB_MODE": "offline", "WANDB_DIR": "/output"}
    namespace.kubectl("create", "secret", "generic", "tracker", "--from-literal=WANDB_API_KEY=k")
    output = on_node(node_folder, "output")
    with claimed_folder(namespace, "wheels", wheels(PACKAGES)):
        both = values(python_image, "wandb", text, env)
        namespace.train("hvd", {**both, **{name: both[name] + output[name] for name in output}})
    files = sorted(node_folder.glob("wandb/offline-run-*/run-resnet50-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1

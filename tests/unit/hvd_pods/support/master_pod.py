"""The pod of a master for tests: its folders, keys, environment, and a launcher on its PATH."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.cluster import kube
from hvd_pods.master import (
    agent_connection,
    code_effects,
    gateway_client,
    launch,
    launcher_effects,
    main,
    mpi,
    worker_access,
)
from hvd_pods.pod import reporting
from hvd_pods.shared import paths
from tests.support.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.support.call_limits import ONCE
from tests.unit.hvd_pods.support.workers import Workers

JOB = "hvd-master-1"


class MasterPod:
    """A master's pod of the Job hvd-master-1, with an image whose mpirun is a shell script.

    The pod's folders are below `folder`. The API server has all objects that the master requests.
    """

    def __init__(
        self, workers: Workers, keys: Path, folder: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.workers = workers
        self.api = workers.api
        self._patch = patch
        # How the master connects to the API server. Calls are not repeated.
        self.connect = partial(kube.Api, ONCE)
        self.generated = folder / "generated"
        self.programs = folder / "programs"
        self.termination_log = folder / "termination-log"
        for made in (self.generated, self.programs):
            made.mkdir(exist_ok=True)
        _move_paths(patch, paths.GENERATED, self.generated)
        _move_paths(patch, paths.KEYS, keys)
        patch.setattr(gateway_client, "GATEWAY_SOCKET", str(self.generated / "gateway.sock"))
        patch.setattr(reporting, "TERMINATION_LOG", self.termination_log)
        patch.setenv("PATH", f"{self.programs}:{os.environ['PATH']}")
        patch.setenv("OUT", str(folder))
        self.api.put("core/configmaps", {"metadata": {"name": "hvd-run"}})
        self.put_job()

    def put_job(self, **changes: Any) -> None:
        """Create the Job, which may fail twice before it fails for good."""
        spec = {"backoffLimit": 2, **changes.pop("spec", {})}
        status = changes.pop("status", {})
        metadata = {"name": JOB, **changes}
        self.api.put("batch/jobs", {"metadata": metadata, "spec": spec, "status": status})

    def install(self, script: str, also: str = "true") -> None:
        """Make mpirun run this script; `also` runs when it is called with --version."""
        version = f"{also}; echo 'mpirun (Open MPI) 4.1.4'; exit"
        program = self.programs / "mpirun"
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ {version}; }}\n{script}\n')
        program.chmod(0o755)

    def environment(self, **changes: Any) -> None:
        """Describe the run to the master as the chart does; `changes` as in Workers.run."""
        described = self.workers.describe(**changes)
        self._patch.setenv("HVD_RUN", described)

    def run(self, **changes: Any) -> int:
        self.environment(**changes)
        return main.main(self.connect, TIMEOUT)

    def replicas(self) -> Any:
        item = self.api.find("apps/statefulsets", "hvd-worker")
        return item and item["spec"]["replicas"]

    def stages(self) -> list[str]:
        return [event["reason"] for event in self.api.items("core/events")]

    def recorded(self) -> tuple[str, str]:
        item: Any = self.api.find("core/configmaps", "hvd-run")
        return item["data"]["state"], item["data"]["reason"]


def read_log(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the master logged, without the times."""
    lines = capsys.readouterr().out.splitlines()
    return [line.partition("] ")[2] for line in lines if line.startswith("[hvd ")]


def _move_paths(patch: pytest.MonkeyPatch, before: str, after: Path) -> None:
    """Point every module's paths below `before` to the same below `after`."""
    modules = (
        paths,
        launch,
        mpi,
        main,
        agent_connection,
        launcher_effects,
        worker_access,
        code_effects,
    )
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, (str, Path)) and Path(value).is_relative_to(before):
                moved = after / Path(value).relative_to(before)
                patch.setattr(module, name, type(value)(moved))

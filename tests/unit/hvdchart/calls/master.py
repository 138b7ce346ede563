"""The call server of a run in the fake cluster, which a test ends and replaces."""

from __future__ import annotations

from pathlib import Path

from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.calls.pod import Pod
from tests.unit.hvdchart.objects import MASTER, job
from tests.unit.hvdchart.played_runs import play_run


class Master:
    """The call server of a run, which ends with the run."""

    def __init__(self, folder: Path, cluster: FakeCluster) -> None:
        self.pod = Pod(folder)
        self._cluster = cluster
        self._process = self.pod.start()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def replace(self) -> None:
        """Let there be another run."""
        self.end()
        self._process = self.pod.start()
        play_run(self._cluster, job(), MASTER)

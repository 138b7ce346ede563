"""Which pod has the timeline."""

from __future__ import annotations

from typing import Any

from hvdchart.run.output import timeline_source
from hvdchart.run.release import Release
from tests.unit.hvdchart.runs import CREATING, RUNNING, pod


def mounting(name: str, path: str, state: Any = RUNNING) -> Any:
    made = pod(name, "worker", state)
    made["spec"]["containers"] = [{"name": "worker", "volumeMounts": [{"mountPath": path}]}]
    return made


def test_the_first_running_pod_that_mounts_the_timeline_has_it() -> None:
    env = [{"name": "HOROVOD_TIMELINE", "value": "/output/timeline.json"}]
    template = {"spec": {"containers": [{"env": env}]}}
    owner = {"metadata": {"name": "hvd-worker"}, "spec": {"template": template}}
    pods = [
        mounting("hvd-worker-0", "/output", CREATING), mounting("hvd-worker-1", "/data"),
        mounting("hvd-worker-2", "/output/"),
    ]  # fmt: skip
    found = timeline_source(Release("hvd", [], [owner], pods, []))
    assert found == ("hvd-worker-2", "worker", "/output/timeline.json")

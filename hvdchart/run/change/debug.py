"""Start a copy of a run's pods without the training, to open a shell in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hvdchart.errors import RunFailedError
from hvdchart.run.change.control import installed_values
from hvdchart.run.change.session import Session
from hvdchart.run.follow.changes import watch_run
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import present_run
from hvdchart.run.state.phases import TRAINING
from hvdchart.run.state.ranks import run_of
from hvdchart.run.state.view import RunView

# Values that name or belong to objects of the run itself.
_OWN = ("session", "extraObjects", "fullnameOverride", "nameOverride", "tensorboard")
_MASTER = {
    "args": ["sh", "-c", "exec sleep infinity"],
    "backoffLimit": 0,
    "suspend": False,
    "activeDeadlineSeconds": None,
}


@contextmanager
def debug_pods(
    cluster: Cluster, name: str, helm: Helm, report: Callable[[str], None]
) -> Iterator[RunView]:
    """Yield the run NAME-debug; its pods run a command that only waits.

    The run is uninstalled at the end of the block. Calls `report` with the reason for each wait.
    Raises ClusterError when there is no such run, or NAME-debug exists already, RunFailedError when
    the pods do not come up, and HelmError.
    """
    run = present_run(cluster, name)
    copy = f"{name}-debug"
    values = installed_values(run, cluster.namespace, helm)
    launch = values.get("launch") or {}
    # The other keys are settings of the launcher, which is not started.
    kept = {key: launch[key] for key in ("workersTimeoutSeconds", "preload") if key in launch}
    values = {key: value for key, value in values.items() if key not in _OWN}
    values["launch"] = {"mode": "custom", "allowIdleWorkers": True, **kept}
    values["master"] = {**(values.get("master") or {}), **_MASTER}
    with Session(cluster, copy, helm, report, f"run hvdchart debug {name} again") as session:
        session.upgrade(values)
        yield _wait_until_up(cluster, copy, report)


def _wait_until_up(cluster: Cluster, name: str, report: Callable[[str], None]) -> RunView:
    """Return the run when its master has started. Raises RunFailedError when the run fails."""
    last = ""
    for run in watch_run(cluster, name):
        current = run.status
        # Without access to the API, the master cannot report that it distributed the code.
        is_known = run.phase.name == TRAINING or (run.job and not run_of(run.job).has_api_access)
        if current.state == "running" and is_known:
            return run
        if current.over:
            raise RunFailedError(f"run {name} {current.state}: {current.reason}")
        if current.state != "not found" and current.reason not in ("", last):
            last = current.reason
            ending = f"; {current.remedy}" if current.remedy else ""
            report(f"{last}{ending}")
    raise AssertionError("a watch without a time-out has no end")

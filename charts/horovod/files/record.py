"""The release's record of its last run: a ConfigMap that outlives the run's Job.

`master.ttlSecondsAfterFinished` removes a Job that has ended. Without the record, applying the same
manifests again after that (an upgrade, a roll-back, a GitOps tool) would train again.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Dict, Mapping

from kube import Api, ApiError
from settings import RunError, log

FINISHED, FAILED, RUNNING = "Finished", "Failed", "Running"
# Seconds for which the record that the run began is tried again.
RUNNING_PATIENCE = 10.0
Entry = Dict[str, str]


class RunRecord:
    """The ConfigMap; without access to the API it is neither read nor written."""

    def __init__(self, api: Api | None, name: str) -> None:
        self._api = api
        self._name = name

    def earlier_end(self) -> Entry | None:
        """Return how this very run ended under an earlier Job of the same name, if it did.

        Raises RunError when the API server does not say it for minutes: to train again by mistake
        is worse than to fail, and the Job makes another attempt.
        """
        if self._api is None:
            return None
        try:
            data = self._api.get(f"core/configmaps/{self._name}").get("data") or {}
        except ApiError as problem:
            if problem.status not in (403, 404):
                raise RunError(f"cannot read whether this run has ended: {problem}") from problem
            log(f"cannot read the record of earlier runs: {problem}")
            return None
        return data if ended_under_another_job(data, os.environ) else None

    def write(self, state: str, reason: str = "") -> None:
        """Write the run's state. A failure is logged: the run goes on without the record."""
        if self._api is None:
            return
        entry = {
            "job": os.environ["HVD_JOB"],
            "uid": os.environ["HVD_JOB_UID"],
            "state": state,
            "reason": reason,
            "time": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        # The training does not wait for what only its end must have.
        patience = RUNNING_PATIENCE if state == RUNNING else None
        try:
            self._api.merge_patch(f"core/configmaps/{self._name}", {"data": entry}, patience)
        except ApiError as problem:
            log(f"cannot write the record of this run: {problem}")


def ended_under_another_job(data: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether the record is about the end of this run, and not of this Job's own last attempt."""
    return (
        data.get("job") == environment["HVD_JOB"]
        and data.get("uid") != environment["HVD_JOB_UID"]
        and data.get("state") in (FINISHED, FAILED)
    )

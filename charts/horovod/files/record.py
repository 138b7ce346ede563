"""The release's record of its last run: a ConfigMap, for the Job that knew may be gone.

`master.ttlSecondsAfterFinished` removes a Job that is over. Were it not for this, whoever sends the
same manifests again then (an upgrade, a roll-back, a GitOps tool) would do the training again.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Dict, Mapping

from kube import Api, ApiError
from settings import log

FINISHED, FAILED, RUNNING = "Finished", "Failed", "Running"
Entry = Dict[str, str]


class Record:
    """The ConfigMap; without access to the API it knows and keeps nothing."""

    def __init__(self, api: Api | None, name: str) -> None:
        self._api = api
        self._name = name

    def earlier_end(self) -> Entry | None:
        """How this very run ended under an earlier Job of the same name, if it did."""
        if self._api is None:
            return None
        try:
            data = self._api.get(f"core/configmaps/{self._name}").get("data") or {}
        except (ApiError, OSError) as problem:
            log(f"no record of earlier runs can be read: {problem}")
            return None
        return data if ended_before(data, os.environ) else None

    def write(self, state: str, reason: str = "") -> None:
        """Keep where the run stands. What cannot be kept is logged: the run goes on without it."""
        if self._api is None:
            return
        entry = {
            "job": os.environ["HVD_JOB"],
            "uid": os.environ["HVD_JOB_UID"],
            "state": state,
            "reason": reason,
            "time": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        try:
            self._api.merge_patch(f"core/configmaps/{self._name}", {"data": entry})
        except (ApiError, OSError) as problem:
            log(f"no record of the run was kept: {problem}")


def ended_before(data: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Does the record tell of the end of this run, and not of this Job's own earlier attempt?"""
    return (
        data.get("job") == environment["HVD_JOB"]
        and data.get("uid") != environment["HVD_JOB_UID"]
        and data.get("state") in (FINISHED, FAILED)
    )

"""Events on the Job: `kubectl describe job` and `kubectl get events` tell how the run goes."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from kube import Api, ApiError
from settings import say


class Events:
    """Tells of the run's stages; without access to the API it tells nobody."""

    def __init__(self, api: Api | None) -> None:
        self._api = api
        # The last one told, for those who ask.
        self.stage = "Starting"

    def tell(self, reason: str, message: str, warning: bool = False) -> None:
        """Make one event. One that cannot be made is logged: the run goes on without it."""
        self.stage = reason
        if self._api is None:
            return
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        job = os.environ["HVD_JOB"]
        body = {
            "metadata": {"generateName": f"{job}."},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job,
                "namespace": self._api.namespace,
                "uid": os.environ["HVD_JOB_UID"],
            },
            "reason": reason,
            # The API server takes no longer message.
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "horovod-master"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._api.create("core/events", body)
        except (ApiError, OSError) as problem:
            say(f"no event {reason} was made: {problem}")

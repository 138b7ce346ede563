"""Events on the Job: `kubectl describe job` and `kubectl get events` tell how the run goes."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timezone

from kube import Api, ApiError
from settings import log


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
        now = datetime.now(timezone.utc)
        second = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        job = os.environ["HVD_JOB"]
        body = {
            # Lists come in the names' order, and two stages may share a second: the name and
            # eventTime keep them apart.
            "metadata": {"name": f"{job}.{now:%Y%m%d%H%M%S%f}"},
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
            "reportingComponent": "horovod-master",
            "reportingInstance": socket.gethostname(),
            "action": reason,
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "firstTimestamp": second,
            "lastTimestamp": second,
            "count": 1,
        }
        try:
            self._api.create("core/events", body)
        except (ApiError, OSError) as problem:
            log(f"no event {reason} was made: {problem}")

"""Events about the Job: `kubectl describe job` and `kubectl get events` show the run's stages."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timezone

from kube import Api, ApiError
from settings import log

# The API server takes no longer message.
LONGEST_MESSAGE = 1024


class EventRecorder:
    """Creates an event at each stage of the run; without access to the API it creates none."""

    def __init__(self, api: Api | None) -> None:
        self._api = api
        # The reason of the last event, which the metrics show.
        self.stage = "Starting"

    def emit(self, reason: str, message: str, warning: bool = False) -> None:
        """Create an event. A failure is logged: the run goes on without the event."""
        self.stage = reason
        if self._api is None:
            return
        now = datetime.now(timezone.utc)
        second = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        job = os.environ["HVD_JOB"]
        body = {
            # Lists are sorted by name, and two stages may fall into one second: the name and
            # eventTime keep their order.
            "metadata": {"name": f"{job}.{now:%Y%m%d%H%M%S%f}"},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job,
                "namespace": self._api.namespace,
                "uid": os.environ["HVD_JOB_UID"],
            },
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
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
        except ApiError as problem:
            log(f"cannot create the event {reason}: {problem}")

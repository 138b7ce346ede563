"""Events about the Job: `kubectl describe job` and `kubectl get events` show the run's stages."""

from __future__ import annotations

import os
import queue
import socket
from datetime import datetime, timezone
from functools import partial
from http import HTTPStatus

from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.pod.reporting import log
from hvd_pods.pod.threads import start_thread
from hvd_pods.shared import contract
from hvd_pods.shared.objects import Object, format_precise_time, format_time
from hvd_pods.shared.untrusted import printable

# The API server accepts no longer message.
MAX_EVENT_MESSAGE_CHARACTERS = 1024
# Seconds for which an event is retried, and for which the ending master waits for events.
EVENT_RETRY_SECONDS = 60.0
EVENTS_CLOSE_TIMEOUT_SECONDS = 5.0


class JobEvents:
    """Creates Kubernetes events about the Job; without access to the API (None) it creates none.

    A thread sends them, in order: an unavailable API server must not delay the training.
    """

    def __init__(
        self, api: Api | None, close_timeout_seconds: float = EVENTS_CLOSE_TIMEOUT_SECONDS
    ) -> None:
        self._api = api
        self._close_timeout_seconds = close_timeout_seconds
        # None ends the thread.
        self._waiting: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        if api:
            self._sender = start_thread("send-events", partial(self._send, api))

    def close(self) -> None:
        """Wait until the events are created, at most `close_timeout_seconds`."""
        if self._api:
            self._waiting.put(None)
            self._sender.join(self._close_timeout_seconds)

    def put(self, reason: str, message: str, is_warning: bool) -> None:
        """Queue an event, with the message cut at MAX_EVENT_MESSAGE_CHARACTERS.

        A failure is logged: the run continues without the event.
        """
        if self._api is None:
            return
        now = datetime.now(timezone.utc)
        second = format_time(now.timestamp())
        job = os.environ[contract.JOB]
        body = {
            # Lists are sorted by name, and two stages may fall into one second: the name and
            # eventTime keep their order.
            "metadata": {"name": f"{job}.{now:%Y%m%d%H%M%S%f}"},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job,
                "namespace": self._api.namespace,
                "uid": os.environ[contract.JOB_UID],
            },
            "reason": reason,
            "message": printable(message)[:MAX_EVENT_MESSAGE_CHARACTERS],
            "type": "Warning" if is_warning else "Normal",
            "source": {"component": "horovod-master"},
            "reportingComponent": "horovod-master",
            "reportingInstance": socket.gethostname(),
            "action": reason,
            "eventTime": format_precise_time(now),
            "firstTimestamp": second,
            "lastTimestamp": second,
            "count": 1,
        }
        self._waiting.put(body)

    def _send(self, api: Api) -> None:
        for body in iter(self._waiting.get, None):
            try:
                api.create("core/events", body, retry_seconds=EVENT_RETRY_SECONDS)
            except ApiError as problem:
                # The response to an earlier attempt was lost: no other event has this name.
                if problem.status != HTTPStatus.CONFLICT:
                    log(f"cannot create the event {body['reason']}: {problem}")

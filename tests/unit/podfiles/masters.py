"""Masters for tests, each in a pod of its own, with the record that they hold in turn."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from hvd_pods.master import kube
from hvd_pods.master.lease import Lease
from tests.fakes.api import FakeApi

PATH = "core/configmaps/hvd-run"


class Masters:
    """Makes the leases of masters, each in a pod of its own."""

    def __init__(self, api: FakeApi, patch: pytest.MonkeyPatch) -> None:
        self.api, self._patch = api, patch
        self.waited: list[str] = []
        self._made: list[Lease] = []
        api.put("core/configmaps", {"metadata": {"name": "hvd-run"}})

    def make(
        self, pod: str, job: str = "job-1", on_lost: Callable[[], None] = lambda: None
    ) -> Lease:
        self._patch.setattr(socket, "gethostname", lambda: pod)
        self._patch.setenv("HVD_JOB", job)
        self._patch.setenv("HVD_JOB_UID", f"uid-of-{job}" if job else "")
        self._made.append(Lease(kube.Api(), "hvd-run", on_lost))
        return self._made[-1]

    def take(self, made: Lease, is_stopped: Callable[[], bool] = lambda: False) -> Lease:
        made.take(is_stopped, self.waited.append)
        return made

    def data(self) -> dict[str, str]:
        item: Any = self.api.find("core/configmaps", "hvd-run")
        data: dict[str, str] = item.get("data", {})
        return data

    def close(self) -> None:
        for made in self._made:
            made.release()

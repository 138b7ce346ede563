"""The release's record of its last run: a ConfigMap that outlives the run's Job.

A Job may be removed after its end, and a newer chart makes another Job of the same run. Without the
record, applying manifests again (an upgrade, a roll-back, a GitOps tool) would train again.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Dict, Mapping

from hvd_pods.common.errors import RunError
from hvd_pods.common.fence import EPOCH
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Run
from hvd_pods.master.attempts import Count
from hvd_pods.master.kube import Api, ApiError
from hvd_pods.master.lease import Lease
from hvd_pods.master.progress import Progress

FINISHED, FAILED, RUNNING = "Finished", "Failed", "Running"
# Seconds for which an attempt waits until the record says that it begins.
RUNNING_WITHIN = 2.0
Entry = Dict[str, str]


class RunRecord:
    """The ConfigMap; without access to the API it is neither read nor written."""

    def __init__(self, api: Api | None, run: Run, lease: Lease) -> None:
        self._api = api
        self._run = run
        self._lease = lease
        # Of this run, over all masters.
        self.count = Count()
        self.last_failure = ""
        self.progress = Progress()
        # The workers that have ranks, where they need not be the first ones (files/spares.py).
        self.hosts = ""
        # What was last to be written: where it was not, a renewal of the lease does it.
        self._entry: Entry = {}
        lease.news = self._news
        self._name = run.record
        # How the results of this run were stored (files/results.py); empty while they were not.
        self.results = ""
        # Whether this Job has started the ranks before.
        self.was_training = False

    def read_earlier_result(self) -> Entry | None:
        """Return how this run ended before, if it did and is not to be tried again.

        Otherwise `count` goes on from there.

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
        if data.get("run") == self._run.id and data.get("settings") == self._run.settings:
            self.count = Count(int(data.get("attempts") or 0), int(data.get("failures") or 0))
        self.was_training = data.get("trained") == os.environ["HVD_JOB_UID"]
        if not has_ended(self._run, data, os.environ["HVD_JOB_UID"]):
            return None
        self.results = data.get("results", "")
        return data

    def begin_attempt(self) -> None:
        """Begin an attempt: workers serve its epoch, and the record says that the run goes on."""
        self._lease.next_epoch()
        # The ssh of this pod sends it to the workers (files/fence.py).
        os.environ[EPOCH] = str(self._lease.epoch)
        self.count = self.count.begin()
        self.progress = Progress()
        self.write(RUNNING, self.last_failure)

    def begin_training(self) -> None:
        """Record that the ranks are started: an elastic run may go on with fewer from now on."""
        if not self.was_training:
            self.was_training = True
            self.write(RUNNING, self.last_failure)

    def count_failure(self, problem: RunError) -> None:
        """Count an attempt that failed, which the record shows from the next write on."""
        self.count, self.last_failure = self.count.fail(), str(problem)

    def write_results(self, how: str) -> None:
        """Record how the results were stored, and nothing else: the run may be another Job's."""
        self.results = how
        if self._entry:
            self._entry = {**self._entry, "results": how}
        self._lease.write({"results": how})

    def write(self, state: str, reason: str = "") -> None:
        """Write the run's state, unless another master has taken the record.

        The training does not wait for what only its end must have.
        """
        entry = {
            "run": self._run.id,
            "settings": self._run.settings,
            "job": os.environ["HVD_JOB"],
            "uid": os.environ["HVD_JOB_UID"],
            "attempts": str(self.count.attempts),
            "failures": str(self.count.failures),
            "state": state,
            "reason": reason,
            "results": self.results,
            "time": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if self.was_training:
            entry["trained"] = entry["uid"]
        self._entry = entry
        if state == RUNNING:
            self._lease.renew(RUNNING_WITHIN)
        else:
            self._lease.write(self._news())

    def _news(self) -> Entry:
        # A run whose earlier end is only repeated leaves the record as it is.
        if not self._entry:
            return {}
        return {**self._entry, "progress": self.progress.entry(), "hosts": self.hosts}

    @property
    def lost(self) -> str:
        """The master that has taken the record from this one; empty while this one has it."""
        return self._lease.lost


def has_ended(run: Run, data: Mapping[str, str], uid: str) -> bool:
    """Whether the record says that there is nothing left to do for this run.

    A run that finished is never repeated. A run that failed is tried again with other settings, and
    by its own Job (`uid`), whose last attempt may have expected that no other one would follow.
    """
    if data.get("run") != run.id:
        return False
    if data.get("state") == FAILED:
        return data.get("settings") == run.settings and data.get("uid") != uid
    return data.get("state") == FINISHED

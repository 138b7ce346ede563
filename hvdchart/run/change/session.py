"""A release that a command installs, keeps alive by a lease while it runs, and removes.

If the command is killed, or its machine sleeps, the run's master ends the run: it stops a run whose
lease was not renewed for a while (the chart's hvd_pods/rules/session_lease.py).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from hvd_pods.shared.contract import RENEWED, SESSION
from hvd_pods.shared.record import LEASE_KEPT, RecordKey
from hvdchart.errors import ClusterError, HelmError, HvdchartError, NoRunError
from hvdchart.run.change.control import remove_release
from hvdchart.run.helm import Helm, last_revision, release_session, upgrade_release
from hvdchart.run.helm_errors import BUSY
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import read_release
from hvdchart.run.state.release import Object, Release

# Seconds without a renewal after which the cluster ends the run; session.leaseSeconds may differ.
LEASE_SECONDS = 600
# The number of renewals within the time of a lease.
RENEWALS_PER_LEASE = 10
# Seconds between two checks of the clock: after sleep, a machine renews soon.
_CLOCK_POLL_INTERVAL_SECONDS = 5.0


class Session:
    """The release of one command, identified by a session id: another release of its name is kept.

    `report` gets messages for the user, also from another thread. `after_end` says what to do when
    the cluster has ended the run because its lease was not renewed.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        helm: Helm,
        report: Callable[[str], object],
        after_end: str,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._helm = helm
        self._report = report
        self._after_end = after_end
        self._id = secrets.token_hex(8)
        # Whether Helm may have created a part of the release, and whether it has created all of it.
        self.is_begun = False
        self._is_installed = False
        self._lease: _Lease | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def upgrade(
        self, values: Object, *, create_namespace: bool = False, is_validated: bool = True
    ) -> None:
        """Install the release, or upgrade it. The rest of a refused installation is removed.

        Raises HelmError. Raises ClusterError if Helm cannot reach the cluster, or a release of
        another session has the name.
        """
        if not self.is_begun:
            self._require_free()
        session = {"leaseSeconds": LEASE_SECONDS, **(values.get("session") or {}), "id": self._id}
        self.is_begun = True
        try:
            upgrade_release(
                self._name,
                self._cluster.namespace,
                {**values, "session": session},
                self._helm,
                create_namespace=create_namespace,
                is_validated=is_validated,
            )
        except (HelmError, ClusterError) as problem:
            if not self._is_installed:
                self._end_first(problem)
            raise
        self._is_installed = True
        seconds = float(session["leaseSeconds"] or 0)
        if seconds and not self._lease:
            self._lease = _Lease(self._renew, seconds, self._report, self._after_end)

    def _require_free(self) -> None:
        """Raise ClusterError if a release has the name: it would be replaced, and removed."""
        # Refused requests fail here: the error of Helm would be less clear.
        read_release(self._cluster, self._name)
        namespace = self._cluster.namespace
        if last_revision(self._name, namespace, self._helm):
            raise ClusterError(
                f"release {self._name} exists already in namespace {namespace}, and this command "
                "would remove it at its end: use another name, or remove that one first, with "
                f"hvdchart undeploy {self._name} -n {namespace}"
            )

    def _end_first(self, problem: HvdchartError) -> None:
        """Remove the objects of a failed first installation; the caller reports the problem."""
        self.is_begun = False
        # A release that another command is changing belongs to that command.
        if BUSY in str(problem):
            return
        namespace = self._cluster.namespace
        try:
            revision = last_revision(self._name, namespace, self._helm)
            # A failed upgrade leaves an existing release unchanged.
            if revision is None or revision.was_never_installed:
                self.is_begun = True
                self.remove()
        except (ClusterError, HelmError):
            # The caller reports the problem. If Helm cannot be called at all, the problem is
            # enough.
            if self.is_begun:
                again = f"hvdchart undeploy {self._name} -n {namespace}"
                self._report(f"to remove what Helm has created of the release: {again}")
            self.is_begun = False

    def remove(self) -> bool:
        """Uninstall the release; return whether it existed and belonged to this session.

        Raises HelmError and ClusterError; another call then tries again.
        """
        if self._lease:
            self._lease.close()
            self._lease = None
        if not self.is_begun:
            return False
        namespace = self._cluster.namespace
        owner = release_session(self._name, namespace, self._helm)
        is_own = owner in (None, self._id)
        if is_own:
            # Another user may have removed it.
            with suppress(NoRunError):
                remove_release(self._cluster, self._name, self._helm)
        else:
            self._report(f"release {self._name} is another command's by now, and stays")
        self.is_begun = False
        self._is_installed = False
        return is_own

    def _renew(self) -> str:
        """Renew the lease of this session's Jobs; return why the cluster ended the last one, or "".

        Raises ClusterError.
        """
        release = read_release(self._cluster, self._name)
        jobs = [job for job in release.jobs if _session_of(job) == self._id]
        for job in jobs:
            self._cluster.annotate_job(job, {RENEWED: f"{time.time():.3f}"})
        uids = {job["metadata"].get("uid") for job in jobs}
        return lease_end(release) if release.record.get(RecordKey.UID) in uids else ""


def lease_end(release: Release) -> str:
    """Return why the master ended the run, if the lease was not renewed; otherwise return ""."""
    note = release.record.get(RecordKey.LEASE, "")
    return "" if note == LEASE_KEPT else note


def _session_of(job: Object) -> str:
    """Return the id of the session that a Job belongs to; empty without one."""
    return str((job["metadata"].get("annotations") or {}).get(SESSION, ""))


class _Lease:
    """Renews a lease in a thread until it is closed."""

    def __init__(
        self,
        renew: Callable[[], str],
        seconds: float,
        report: Callable[[str], object],
        after_end: str,
    ) -> None:
        self._renew = renew
        self._seconds = seconds
        self._report = report
        self._after_end = after_end
        self._closed = threading.Event()
        threading.Thread(target=self._follow, name="lease", daemon=True).start()

    def close(self) -> None:
        """Stop renewing."""
        self._closed.set()

    def _follow(self) -> None:
        interval_seconds = self._seconds / RENEWALS_PER_LEASE
        renewed = _now()
        reported = ""
        while not self._closed.wait(min(_CLOCK_POLL_INTERVAL_SECONDS, interval_seconds)):
            passed = _since(renewed)
            if passed < interval_seconds:
                continue
            try:
                ended = self._renew()
            except ClusterError as error:
                if passed > self._seconds / 2 and not reported:
                    reported = f"cannot renew the lease of the run: {error}"
                    left = f"the cluster ends it {self._seconds:g} s after the last renewal"
                    self._report(f"{reported}; {left}")
                continue
            renewed = _now()
            if ended and ended != reported:
                here = f"this machine has not renewed it for {passed:.0f} s"
                self._report(f"the run has ended: {ended}; {here}; {self._after_end}")
            reported = ended


def _now() -> tuple[float, float]:
    """Return the current time of two clocks: the first one stops while the machine sleeps."""
    return time.monotonic(), time.time()


def _since(then: tuple[float, float]) -> float:
    """Return the seconds since then by the clock with more: the second one may be set back."""
    return max(now - before for now, before in zip(_now(), then, strict=True))

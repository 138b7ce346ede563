"""Which master controls the workers: the one that holds the release's record.

Two masters of a release can exist at once: of two runs, where nothing prunes the earlier Job, or of
one run, when a node does not answer and its pod was given up. The holder writes its name into the
record and renews it. Another master waits, and takes the record over when the holder has given it
back or has not renewed it. Each time, the epoch grows: workers refuse a master of an earlier one
(files/fence.py). That protects them even from a master that cannot reach the API server and does
not know yet that it was replaced.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Mapping

from hvd_pods.common.errors import ConfigurationError, InterruptedRunError, RunError
from hvd_pods.common.reporting import log
from hvd_pods.master.kube import Api, ApiError

# Seconds between two renewals, and without one after which the holder has lost the record. The
# waiting master measures them by its own clock.
RENEW_EVERY, EXPIRES_AFTER = 10.0, 30.0
# Seconds between two looks at a record that another master holds.
LOOK_EVERY = 1.0
# Seconds for which the training waits for the record to be written. It then begins all the same.
TAKE_RETRY_SECONDS = 10.0
# More than the attempts that a holder makes whose epochs cannot be written to the record.
MOST_UNWRITTEN = 1000
Data = Dict[str, str]


class SupersededError(ConfigurationError):
    """Another master controls the workers now, and an attempt of this Job would take them."""


class Lease:
    """This master's hold of the record; without access to the API only its epoch.

    `on_lost` is called, in a thread, when another master has taken the record. From then on, `lost`
    names that one.
    """

    def __init__(self, api: Api | None, record: str, on_lost: Callable[[], None]) -> None:
        self.epoch = 0
        self.lost = ""
        self._api = api
        self._record = record
        self._on_lost = on_lost
        # What each renewal writes, too.
        self.news: Callable[[], Data] = dict
        # Renewals that are asked for, each with what is set when it has been tried.
        self._asked: queue.Queue[threading.Event] = queue.Queue()
        self._is_held = False
        # Of the record as it was read last. Without one, it is written without a condition.
        self._version = ""
        self._data: Data = {}
        self._guard = threading.RLock()
        self._released = threading.Event()
        self._own = {
            "holder": socket.gethostname(),
            # The pod of `helm test` has no Job.
            "holderJob": os.environ["HVD_JOB"] or "helm test",
            "holderUid": os.environ["HVD_JOB_UID"],
        }

    def take(
        self, is_stopped: Callable[[], bool], on_wait: Callable[[str], None], until: float = 0.0
    ) -> None:
        """Wait until this master holds the record, and keep renewing it.

        `on_wait` gets the holder that is waited for. Raises RunError when this pod is asked to end,
        when the API server does not answer for minutes, and at `until`, by time.monotonic().
        """
        if self._api is None:
            self.epoch = new_epoch()
            return
        seen, seen_at = "", 0.0
        while not self._try_to_take(seen, seen_at):
            holder, now = describe_holder(self._data), time.monotonic()
            if renewal(self._data) != seen:
                if not seen:
                    on_wait(holder)
                seen, seen_at = renewal(self._data), now
            if is_stopped():
                raise InterruptedRunError(f"terminated while {holder} controls the workers")
            if until and now >= until:
                raise RunError(f"{holder} still controls the workers")
            time.sleep(LOOK_EVERY)

    def next_epoch(self) -> None:
        """Begin a new epoch, so that workers end what an earlier attempt has left.

        The next renewal writes it. Until then another master may take the record over, whose epoch
        is higher than any that follows this one: workers end what this master starts beside it.
        """
        self.epoch += 1

    def renew(self, within: float) -> None:
        """Write the news at once, and wait for that at most `within` seconds.

        While the API server is away it is not waited for: the next renewals try again.
        """
        if not self._is_held or self.lost:
            self.write(self.news(), within)
            return
        done = threading.Event()
        self._asked.put(done)
        done.wait(0.0 if self._api and self._api.is_away else within)

    def write(self, data: Mapping[str, str], retry_seconds: float | None = None) -> bool:
        """Change the record unless another master has taken it. Whether it was changed.

        A failure is logged: the training goes on, protected by its epoch.
        """
        if self._api is None:
            return False
        with self._guard:
            if self.lost:
                return False
            try:
                while not self._patch(data, retry_seconds):
                    # One that has given it back since has a higher epoch than this master's own.
                    is_later = int(self._data.get("epoch") or 0) > self.epoch
                    if is_later or (self._data.get("holder") and not self._is_own()):
                        self._lose()
                        return False
            except ApiError as problem:
                log(f"cannot write the record of this run: {problem}")
                return False
        return True

    def release(self) -> None:
        """Give the record back, so that another master need not wait."""
        self._released.set()
        self._asked.put(threading.Event())
        if self._is_held and not self.lost:
            with self._guard:
                # The end of the run is among the news, which may not have been written yet.
                self.write({**self.news(), "holder": ""}, retry_seconds=RENEW_EVERY)

    def _try_to_take(self, seen: str, seen_at: float) -> bool:
        """Take the record if it is free; otherwise `_data` is what it has."""
        try:
            self._read()
        except ApiError as problem:
            return self._continue_without_record(problem)
        if self._data.get("superseded") == self._own["holderUid"] != "":
            raise SupersededError(
                f"{self._data.get('holderJob')} has taken the workers over from this Job: delete "
                "the Job, which is obsolete"
            )
        is_silent = renewal(self._data) == seen and time.monotonic() - seen_at > EXPIRES_AFTER
        if not (self._is_free() or is_silent):
            return False
        self.epoch = new_epoch(int(self._data.get("epoch") or 0) + MOST_UNWRITTEN)
        changes = {}
        if not self._is_free():
            log(f"{describe_holder(self._data)} has not renewed its hold: taking over")
            changes["superseded"] = self._data.get("holderUid", "")
        try:
            if not self._patch(changes, TAKE_RETRY_SECONDS):
                return False
        except ApiError as problem:
            if not problem.is_temporary:
                return self._continue_without_record(problem)
            log(f"cannot write the record: {problem}; trying again during the training")
        self._is_held = True
        threading.Thread(target=self._renew, daemon=True).start()
        return True

    def _continue_without_record(self, problem: ApiError) -> bool:
        """Go on without the record if this master has no right to it; otherwise raise RunError."""
        if problem.status not in (403, 404):
            raise RunError(f"cannot read which master controls the workers: {problem}") from problem
        log(f"cannot hold the record: {problem}; the workers accept the newest master")
        self.epoch, self._version = new_epoch(), ""
        return True

    def _is_free(self) -> bool:
        """Whether nobody holds the record, or a pod of this very Job that has ended.

        The Job controller starts a pod when the one before has ended (podReplacementPolicy).
        """
        own = self._own["holderUid"] != "" and self._data.get("holderUid") == self._own["holderUid"]
        return not self._data.get("holder") or self._is_own() or own

    def _is_own(self) -> bool:
        return self._data.get("holder") == self._own["holder"]

    def _renew(self) -> None:
        while not (self._released.is_set() or self.lost):
            done = None
            with suppress(queue.Empty):
                done = self._asked.get(timeout=RENEW_EVERY)
            with self._guard:
                news = self.news()
                # Written now, it would take back the record that was just given back.
                if not self._released.is_set():
                    self.write(news, retry_seconds=0.0)
            if done:
                done.set()

    def _lose(self) -> None:
        self.lost = describe_holder(self._data)
        log(f"{self.lost} controls the workers now")
        self._on_lost()

    def _read(self) -> None:
        assert self._api  # noqa: S101
        item = self._api.get(f"core/configmaps/{self._record}")
        self._version = item["metadata"].get("resourceVersion", "")
        self._data = item.get("data") or {}

    def _patch(self, data: Mapping[str, str], retry_seconds: float | None) -> bool:
        """Change the record as it was read. When it has changed since, read it: False."""
        assert self._api  # noqa: S101
        body: dict[str, Any] = {"data": dict(data)}
        if self._version:
            hold = {**self._own, "epoch": str(self.epoch), "renewed": _now()}
            body = {"data": {**hold, **data}, "metadata": {"resourceVersion": self._version}}
        try:
            item = self._api.merge_patch(f"core/configmaps/{self._record}", body, retry_seconds)
        except ApiError as problem:
            if problem.status != 409:
                raise
            self._read()
            return False
        if self._version:
            self._version = item["metadata"].get("resourceVersion", "")
        return True


def new_epoch(last: int = 0) -> int:
    """Return a number greater than the last one, also where nothing records that: the time."""
    return max(last + 1, time.time_ns() // 1_000_000)


def describe_holder(data: Mapping[str, str]) -> str:
    """Name a record's holder in messages."""
    return f"{data.get('holder') or 'a master'} of {data.get('holderJob')}"


def renewal(data: Mapping[str, str]) -> str:
    """Return what changes with each renewal, and with each holder."""
    return f"{data.get('holder')} {data.get('epoch')} {data.get('renewed')}"


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

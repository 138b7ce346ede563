"""Which hosts are missing and why, from one list of the release's pods, and stale pods replaced.

An upgrade leaves pods of an earlier revision, which may never answer, and which nothing but the
master replaces. The pod of a node that is gone, which Kubernetes has given up after some minutes,
stays until somebody deletes it for good: its StatefulSet creates no other one before.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Callable, Dict, Iterable, Mapping, Sequence

from hvd_pods.common.pod_problems import Diagnosis, diagnose, diagnose_refusal
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host, Run
from hvd_pods.common.ssh import STALE
from hvd_pods.master.kube import Api, ApiError, Object, parse_time
from hvd_pods.master.statefulsets import creation_failure, set_number

# Seconds after which a pod should have ended that one is deleted for good which does not answer.
GIVE_UP_AFTER = 60.0
# Pods that are deleted at once.
DELETE_THREADS = 8
# What a report shows at most: groups of hosts, characters of a reason, ranges of hosts in a group.
MOST_GROUPS, LONGEST_REASON, MOST_RANGES = 8, 300, 8
Diagnoses = Dict[Host, Diagnosis]


class PodCheck:
    """Explains why hosts are missing. Each check costs one list of pods, however many there are.

    `is_over` answers whether this master has no more use for workers: it then replaces none.
    """

    def __init__(self, run: Run, api: Api | None, is_over: Callable[[], bool]) -> None:
        self._run = run
        self._api = api
        self._is_over = is_over
        self._replaced: set[str] = set()
        # Since when a host has had a problem that does not pass by itself.
        self._since: dict[Host, float] = {}
        self._lock = threading.Lock()

    def check(self, missing: Sequence[Host], reasons: Mapping[Host, str]) -> Diagnoses:
        """Explain each host; `reasons` are what attempts to connect met. Replaces stale pods."""
        if self._api is None:
            return {host: Diagnosis(reasons[host]) for host in missing}
        query = {"labelSelector": self._run.worker_selector}
        with self._lock:
            try:
                items, _ = self._api.list_all("core/pods", query, retry_seconds=0.0)
            except ApiError as problem:
                text = f"cannot read pods: {problem}"
                return {host: Diagnosis(f"{reasons[host]}; {text}") for host in missing}
            pods = {item["metadata"]["name"]: item for item in items}
            self._replace_stale(self._api, pods)
            self._give_up(self._api, [pods[host.name] for host in missing if host.name in pods])
            found = self._explain(self._api, missing, pods, reasons)
            self._remember(found)
            return found

    def find_lasting(self, diagnoses: Diagnoses) -> list[Host]:
        """Return the hosts that have had a problem for its `wait_seconds` or longer."""
        now = time.monotonic()
        return [
            host
            for host, found in diagnoses.items()
            if found.wait_seconds is not None
            and now - self._since.get(host, now) >= found.wait_seconds
        ]

    def _explain(
        self,
        api: Api,
        missing: Sequence[Host],
        pods: Mapping[str, Object],
        reasons: Mapping[Host, str],
    ) -> Diagnoses:
        absent: dict[str, Diagnosis] = {}
        found = {}
        for host in missing:
            pod = pods.get(host.name)
            if pod is None:
                # The controller stops at the first pod that is refused, which stands for all.
                if host.stateful_set not in absent:
                    absent[host.stateful_set] = self._explain_absence(api, host)
                found[host] = absent[host.stateful_set]
            elif _is_stale(host, pod):
                found[host] = Diagnosis(STALE)
            else:
                diagnosis = diagnose(pod)
                # A container that does not run does not listen either: no need to say so.
                if diagnosis.wait_seconds is None:
                    text = f"{diagnosis.reason}; {reasons[host]}"
                    diagnosis = diagnosis._replace(reason=text)
                found[host] = diagnosis
        return found

    def _explain_absence(self, api: Api, host: Host) -> Diagnosis:
        """Explain why a host has no pod. Too few workers are scaled up again.

        An attempt that expected to be the last one scaled them to 0, and then another attempt was
        made: after an eviction, which does not count as a failure, or a roll-back. Or the API
        server was away when the attempt began (fit_to_run). A run that ends or trains leaves them
        alone: it may be the suspension of the run that took them away.
        """
        run, name = self._run, host.stateful_set
        # A person may have chosen the number of an elastic run.
        below = 1 if run.elastic else run.needed_workers[name]
        try:
            if not self._is_over():
                set_number(api, name, run.initial_workers[name], retry_seconds=0.0, below=below)
            message = creation_failure(api, host.stateful_set, host.name)
        except ApiError as problem:
            message = str(problem)
        return diagnose_refusal(message)

    def _remember(self, diagnoses: Diagnoses) -> None:
        now = time.monotonic()
        self._since = {
            host: self._since.get(host, now)
            for host, found in diagnoses.items()
            if found.wait_seconds is not None
        }

    def _replace_stale(self, api: Api, pods: Mapping[str, Object]) -> None:
        """Delete pods of an earlier revision, all at once: their StatefulSets create new ones."""
        stale = {
            host: pods[host.name]["metadata"]
            for host in self._run.hosts
            if _is_stale(host, pods.get(host.name))
        }
        new = {
            host: item
            for host, item in stale.items()
            if item["uid"] not in self._replaced and "deletionTimestamp" not in item
        }
        # Pods that were read after this answer may be those of the next run.
        if not new or self._is_over():
            return
        log(f"replacing workers {STALE}: {format_hosts(list(new))}")
        with ThreadPoolExecutor(DELETE_THREADS) as pool:
            list(pool.map(lambda item: self._delete(api, item["name"], item["uid"]), new.values()))

    def _give_up(self, api: Api, pods: Sequence[Object]) -> None:
        """Delete pods for good that should have ended long ago, on nodes that do not say so."""
        for pod in pods:
            item = pod["metadata"]
            if "deletionTimestamp" not in item:
                continue
            late = time.time() - parse_time(item["deletionTimestamp"])
            if late > GIVE_UP_AFTER and not self._is_over():
                node = pod.get("spec", {}).get("nodeName")
                log(f"{item['name']} should have ended {late:.0f} s ago on {node}: replacing it")
                self._delete(api, item["name"], item["uid"], grace=0)

    def _delete(self, api: Api, name: str, uid: str, grace: int | None = None) -> None:
        try:
            api.delete(f"core/pods/{name}", uid, retry_seconds=0.0, grace=grace)
        except ApiError as problem:
            # Somebody else deleted it, and perhaps there is a new one.
            if problem.status not in (404, 409):
                log(f"cannot replace {name}: {problem}")
                return
        self._replaced.add(uid)


def _is_stale(host: Host, pod: Object | None) -> bool:
    if pod is None:
        return False
    return bool(pod["metadata"].get("labels", {}).get("horovod/revision") != host.revision)


def describe(diagnoses: Diagnoses) -> list[str]:
    """One line for all hosts that are missing for the same reason, not longer than a person reads.

    The kubelet keeps 4096 bytes of a termination message, whose beginning it cuts off.
    """
    hosts: dict[str, list[Host]] = {}
    for host, found in diagnoses.items():
        hosts.setdefault(found.reason, []).append(host)
    lines = [
        f"{format_hosts(same)}: {reason[:LONGEST_REASON]}"
        for reason, same in list(hosts.items())[:MOST_GROUPS]
    ]
    others = sum(len(same) for same in list(hosts.values())[MOST_GROUPS:])
    return [*lines, f"and {others} more, for other reasons"] if others else lines


def format_hosts(hosts: Sequence[Host]) -> str:
    """Name hosts as ranges: `hvd-worker-[0-31,40]`, with their number if it is not obvious."""
    parts = []
    for name, same in groupby(hosts, key=lambda host: host.stateful_set):
        ordinals = format_ordinals(same)
        shown = ",".join(ordinals[:MOST_RANGES])
        shown += ",..." if len(ordinals) > MOST_RANGES else ""
        parts.append(f"{name}-{shown}" if shown.isdecimal() else f"{name}-[{shown}]")
    more = " and other groups" if len(parts) > MOST_RANGES else ""
    number = f" ({len(hosts)} hosts)" if len(hosts) > 1 else ""
    return ", ".join(parts[:MOST_RANGES]) + more + number


def format_ordinals(hosts: Iterable[Host]) -> list[str]:
    """Return the ordinals of a StatefulSet's hosts as ranges: `0-31` and `40`."""
    found: list[tuple[int, int]] = []
    for host in hosts:
        number = int(host.name.rpartition("-")[2])
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return [f"{first}-{last}" if first != last else str(first) for first, last in found]

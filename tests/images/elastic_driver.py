"""Runs inside the image: Horovod's elastic driver with hosts and processes that are none, and its
loop around a training function; prints as JSON what came of each case.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest.mock import Mock

from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.runner.elastic.discovery import FixedHosts
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.worker import HostUpdateResult

TIMEOUT = 60.0


class Process(NamedTuple):
    """A process of the driver: its host and slot, what ends it, and what waits for its end."""

    name: str
    end: threading.Event
    thread: threading.Thread


class Driver:
    """A driver that needs all slots of its hosts."""

    def __init__(self, **slots: int) -> None:
        self.slots = slots
        number = sum(slots.values())
        self.hosts = FixedHosts(dict(slots))
        self.started = queue.Queue[Process]()
        self.driver = ElasticDriver(
            Mock(), self.hosts, number, number, TIMEOUT, cooldown_range=(1, 1)
        )
        self.driver.wait_for_available_slots(number)
        self.driver.start(number, self._start)
        self.first = {process.name: process for process in self.next(number)}

    def _start(self, slot: Any, events: Sequence[threading.Event]) -> tuple[int, float]:
        name = f"{slot.hostname}{slot.local_rank}"
        process = Process(name, threading.Event(), threading.current_thread())
        self.started.put(process)
        process.end.wait()
        return 1, time.time()

    def meet(self, *names: str) -> None:
        """Ranks that have lost another one ask for their new numbers, and wait for each other."""
        for name in names:
            slot = (name[0], int(name[1]))
            ready = threading.Thread(target=self.driver.record_ready, args=slot)
            ready.daemon = True
            ready.start()

    def lose(self, host: str) -> None:
        """The list of hosts has one less, and the driver has seen it."""
        self.hosts.set({name: slots for name, slots in self.slots.items() if name != host})
        while host in self.driver._host_manager.current_hosts.host_slots:
            time.sleep(0.05)

    def next(self, number: int) -> list[Process]:
        """The next processes that are started."""
        return [self.started.get(timeout=TIMEOUT) for _ in range(number)]

    def end(self, name: str) -> int:
        """End a first process, and the driver knows of it; how many failures are recorded then."""
        self.first[name].end.set()
        self.first[name].thread.join(TIMEOUT)
        return int(self.driver._worker_registry.count("FAILURE"))


def failed_host_gets_processes_again() -> object:
    case = Driver(a=1, b=2)
    case.first["b0"].end.set()
    case.meet("a0", "b1")
    again = sorted(process.name for process in case.next(2))
    # Its host was given up, and it took a while to end.
    return [again, case.end("b1")]


def process_that_ends_while_the_driver_waits_for_its_host_is_replaced() -> object:
    case = Driver(a=1, b=1)
    ended = threading.Event()
    registry = case.driver._worker_registry
    wait = registry.wait_for_action

    def wait_and_tell() -> None:
        ended.set()
        wait()

    registry.wait_for_action = wait_and_tell
    case.lose("b")
    case.meet("a0", "b0")
    case.first["b0"].end.set()
    ended.wait(TIMEOUT)
    case.hosts.set(dict(case.slots))
    (again,) = case.next(1)
    return [[again.name], case.end("b0")]


def a_rank_0_that_does_not_answer_keeps_no_other_waiting() -> object:
    case = Driver(a=1, b=1)
    gone = case.driver.get_coordinator_info().hostname
    silent = Mock(notify_hosts_updated=lambda *_: time.sleep(2 * TIMEOUT))
    case.driver._worker_clients[gone, 0] = silent
    case.lose(gone)
    case.meet("b0" if gone == "a" else "a0")
    case.first[f"{gone}0"].end.set()
    case.hosts.set(dict(case.slots))
    (again,) = case.next(1)
    return again.name == f"{gone}0"


class State:
    """A state that writes down what is done with it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.done.append(name)


def ranks_synchronize_after_hosts_were_removed() -> object:
    def train(state: State) -> None:
        state.done.append("train")
        if state.done.count("train") == 1:
            raise HostsUpdatedInterrupt(skip_sync=True)

    state = State()
    run_fn(train, lambda: state.done.append("meet"))(state)
    return state.done


def hosts_that_change_while_ranks_meet_are_heard_of() -> object:
    state = ObjectState(lambda value: value, lambda: 0, worlds=0)
    done: list[str] = []

    def train(state: Any) -> None:
        done.append("train")
        if done == ["train"]:
            raise HostsUpdatedInterrupt(skip_sync=False)
        state.commit()

    def meet() -> None:
        if "meet" not in done:
            state.on_hosts_updated(1, HostUpdateResult.added)
        done.append("meet")

    run_fn(train, meet)(state)
    return done


CASES = (
    failed_host_gets_processes_again,
    process_that_ends_while_the_driver_waits_for_its_host_is_replaced,
    a_rank_0_that_does_not_answer_keeps_no_other_waiting,
    ranks_synchronize_after_hosts_were_removed,
    hosts_that_change_while_ranks_meet_are_heard_of,
)


def main() -> None:
    results = {}
    for case in CASES:
        try:
            results[case.__name__] = case()
        # The result of this case: the others are looked at.
        except Exception as problem:  # noqa: BLE001
            results[case.__name__] = repr(problem)
    print(f"RESULT {json.dumps(results)}", flush=True)


if __name__ == "__main__":
    main()

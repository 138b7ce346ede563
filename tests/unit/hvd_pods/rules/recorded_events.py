"""The events that the sources of a master have put on its queue, for tests that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from hvd_pods.rules.events import Event
from tests.support.fakes.faults import TIMEOUT

Kind = TypeVar("Kind", bound=Event)


class RecordedEvents:
    """Takes events in the place of the master's queue."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[Kind], **fields: Any) -> list[Kind]:
        """The events of a kind that have these values, in their order."""
        with self._changed:
            return [
                event
                for event in self.events
                if isinstance(event, kind)
                and all(getattr(event, name) == value for name, value in fields.items())
            ]

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, which is looked at after each event."""
        with self._changed:
            assert self._changed.wait_for(lambda: bool(condition()), TIMEOUT), self.events

    def wait_for(self, kind: type[Kind], number: int = 1, **fields: Any) -> Kind:
        """Wait for an event of a kind with these values, the first or a later one of them."""
        self.wait(lambda: len(self.of(kind, **fields)) >= number)
        return self.of(kind, **fields)[number - 1]

"""Prints the phases of a run while a command prints its logs, or waits for its end."""

import threading
import time
from typing import TYPE_CHECKING

from hvdchart.cli.terminal import say
from hvdchart.errors import ClusterError

if TYPE_CHECKING:
    from hvdchart.run.cluster import Cluster


class PhasePrinter:
    """Prints each phase with the time since the start, in a thread, until it is closed.

    With `has_progress`, also print each step that the script reports; otherwise the log has it.
    """

    def __init__(self, cluster: "Cluster", name: str, *, has_progress: bool) -> None:
        self._cluster, self._name, self._has_progress = cluster, name, has_progress
        self._began = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the last phase, though not long."""
        self._thread.join(1.0)
        self._closed.set()

    def _print(self) -> None:
        from hvdchart.run.phases import DONE, TRAINING, phase_of
        from hvdchart.run.watch import watch_release

        last = None
        try:
            for release in watch_release(self._cluster, self._name):
                phase = phase_of(release)
                shown = phase.name if phase.name == TRAINING and not self._has_progress else phase
                if self._closed.is_set():
                    return
                if shown != last:
                    say(f"{time.monotonic() - self._began:5.1f} s  {shown}")
                last = shown
                if phase.name == DONE:
                    return
        except ClusterError as error:
            say(f"{error}; the run continues")

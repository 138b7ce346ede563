"""What the script tells of its progress: from a rank's file to the run's record.

Each rank may write its step, the number of steps, its loss and its images per second to a file in
HVD_METRICS_DIR, which files/metrics.py serves. All ranks make the same steps, so the master follows
the files of one worker, over an SSH session that runs this program. Nothing here can fail the run:
what is not understood is left out, and a session that ends is started again on the next host.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent))
from metrics import parse_samples, read_script_file
from settings import Host

NAMES = {
    "horovod_step": "step",
    "horovod_steps": "steps",
    "horovod_loss": "loss",
    "horovod_images_per_second": "imagesPerSecond",
    "horovod_size": "size",
}
# Seconds between two looks at the files, and before the first: ranks import for seconds.
LOOK_EVERY, FIRST_LOOK = 1.0, 2.0
# Seconds until a session that ended is started again.
AGAIN_AFTER = 5.0
# Seconds in which the worker has to tell the last step, at the end of the training.
LAST_WITHIN = 2.0
# Steps that the speed is measured over, and bytes of a line.
WINDOW, LONGEST_LINE = 60, 4096
# Characters of a number. No count is larger: floats are exact up to here.
LONGEST_NUMBER, LARGEST_COUNT = 40, 1 << 53
Told = Dict[str, Any]


def select_samples(text: str) -> list[str]:
    """The samples of a rank's file that tell its progress."""
    pairs = (sample.rsplit(maxsplit=1) for sample in parse_samples(text)[0])
    return [
        f"{name} {value}" for name, value in pairs if name in NAMES and len(value) < LONGEST_NUMBER
    ]


def parse_progress(samples: Iterable[str]) -> Told:
    """The numbers by name; empty without a step.

    A loss that is not finite is worth knowing, and is a string, because JSON has no such number.
    """
    told: Told = {}
    for sample in samples:
        series, value = sample.split()
        name, number = NAMES[series], float(value)
        is_finite = abs(number) < float("inf")
        if name == "loss":
            told[name] = number if is_finite else str(number)
        elif name == "imagesPerSecond" and is_finite:
            told[name] = number
        elif name != "imagesPerSecond" and 0 <= number <= LARGEST_COUNT:
            told[name] = int(number)
    return told if "step" in told else {}


def read_folder(folder: Path, since: float) -> str:
    """What the first rank here tells that has written after `since`: earlier runs left files."""
    try:
        files = [file for file in folder.iterdir() if file.name.isdecimal()]
    except OSError:
        return ""
    for file in sorted(files, key=lambda file: int(file.name)):
        try:
            is_present = file.stat().st_mtime >= since
        except OSError:
            continue
        samples = select_samples(read_script_file(file)) if is_present else []
        if parse_progress(samples):
            return "\t".join(samples)
    return ""


class Progress:
    """The progress of an attempt, as the record has it."""

    def __init__(self) -> None:
        # Called when the loss is not a number.
        self.on_nan: Callable[[], None] = lambda: None
        self._told: Told = {}
        self._time = ""
        self._began = 0.0
        # When which step was seen.
        self._history: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._process: subprocess.Popen[str] | None = None
        self._closed = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def follow(self, hosts: Callable[[], Sequence[Host]]) -> None:
        """Follow the ranks of the first host, in a thread. Called just before they are started."""
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._follow, args=(hosts,), daemon=True)
        self._thread.start()

    def close(self, *, tells_last: bool) -> None:
        """End the session; with `tells_last`, wait a moment for the last step."""
        self._closed.set()
        with self._guard:
            process = self._process
        if process is None or self._thread is None:
            return
        assert process.stdin  # noqa: S101
        if tells_last:
            process.stdin.close()
            self._thread.join(LAST_WITHIN)
        process.kill()

    def entry(self) -> str:
        """The progress for the record, in JSON; empty while nothing was told."""
        with self._guard:
            if not self._told:
                return ""
            told, time_of_step = dict(self._told), self._time
            (began, first), (now, last) = self._history[0], self._history[-1]
        size = told.pop("size", 1)
        if "imagesPerSecond" in told:
            told["imagesPerSecond"] = round(told["imagesPerSecond"] * size, 3)
        left = told.get("steps", 0) - last
        if left >= 0 and last > first:
            told["secondsLeft"] = round(left * (now - began) / (last - first))
        return json.dumps({**told, "time": time_of_step}, separators=(",", ":"))

    def take(self, line: str, now: float) -> None:
        """Take what the worker told in a line, if it is that."""
        told = parse_progress(select_samples(line.replace("\t", "\n")))
        if not told:
            return
        step = told["step"]
        with self._guard:
            if self._history and step < self._history[-1][1]:
                # Ranks that were started again.
                self._history.clear()
            if not self._history or step > self._history[-1][1]:
                self._history.append((now, step))
                self._time = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._told = told
        if self.is_nan:
            self.on_nan()

    @property
    def is_nan(self) -> bool:
        """Whether the last loss that was told is not a number."""
        return self._told.get("loss") == "nan"

    @property
    def step(self) -> int:
        """The last step that was told; 0 when none was."""
        return int(self._told.get("step", 0))

    def _follow(self, hosts: Callable[[], Sequence[Host]]) -> None:
        number, pause = 0, FIRST_LOOK
        while not self._closed.wait(pause):
            present = hosts()
            if present:
                self._follow_host(present[number % len(present)])
            number, pause = number + 1, AGAIN_AFTER

    def _follow_host(self, host: Host) -> None:
        # The master only: this is a program in workers, which do without.
        import remote

        with self._guard:
            if self._closed.is_set():
                return
            try:
                self._process = subprocess.Popen(
                    # How long ago, because the clocks of two nodes differ.
                    remote.command_line(
                        host, "progress.py", f"{time.monotonic() - self._began:.3f}"
                    ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    errors="replace",
                )
            except OSError:
                return
        assert self._process.stdout  # noqa: S101
        with self._process.stdout as output:
            for line in iter(lambda: output.readline(LONGEST_LINE), ""):
                self.take(line, time.monotonic())
        self._process.wait()


def report(folder: Path, seconds: float, look_every: float = LOOK_EVERY) -> None:
    """Print what the ranks here tell, each time that it changes, until standard input ends.

    They were started so many seconds ago: the files of the attempt before, whose loss may be the
    reason for its end, are older.
    """
    since, last, is_over = time.time() - seconds, "", False
    while not is_over:
        is_over = bool(select.select([sys.stdin], [], [], look_every)[0])
        line = read_folder(folder, since)
        if line not in ("", last):
            print(line, flush=True)
            last = line


def main(environment: Mapping[str, str] = os.environ) -> int:
    """On a worker: tell the master."""
    try:
        report(Path(environment["HVD_METRICS_DIR"]), float(sys.argv[1]))
    except (BrokenPipeError, KeyError):
        # The master has gone; or a worker that an earlier version of the chart has started.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The run's state for Prometheus, served by the master, and by each worker for its ranks.

A script may add metrics of its own as lines such as `horovod_images_per_second 512.3`. Each rank
writes a file of them to the directory that HVD_METRICS_DIR names, and its worker serves them with
the file's name as the label `rank`. Rank 0 may also write the file that the value metrics.file
names, on a volume that master and workers share, which the master serves. Comments are left out,
and so are lines of another form, which are counted.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Run

# What is served beside the script's own metrics; docs/chart-watching.md explains each.
METRICS = {
    "horovod_stage": "Stages of the run: 1 for the current one, 0 for the others.",
    "horovod_ranks": "Ranks that the run starts with.",
    "horovod_hosts_ready": "Workers whose SSH server answers.",
    "horovod_launches_total": "Times that this master has started the ranks.",
    "horovod_stalls_total": "Times that this master has reported ranks that others wait for.",
    "horovod_slots": "Ranks that this worker runs at most.",
    "horovod_script_age_seconds": "Seconds since the script last wrote its metrics.",
    "horovod_script_lines_refused": "Lines of the script that are not metrics.",
}
# A sample of Prometheus' text format: a name, labels, a number.
SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^{}]*\})? +"
    r"[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|(?i:inf|nan))"
)
# The name of a rank's file. Other files, such as files that are being written, are left out.
RANK_FILE = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9_.]*")
STAGES = ("Starting", "Waiting", "Started", "HostsReady", "Training", "Finished", "Failed")
# Bytes that are read of a script's file, which may grow without end.
LARGEST_FILE = 1 << 20
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The samples by which a script reports its progress, and their names in the record.
PROGRESS = {
    "horovod_step": "step",
    "horovod_steps": "steps",
    "horovod_loss": "loss",
    "horovod_images_per_second": "imagesPerSecond",
    "horovod_size": "size",
}
# A longer number is no number of a training, in characters; floats count exactly up to the other.
LONGEST_NUMBER, LARGEST_COUNT = 40, 1 << 53
ReportedProgress = Dict[str, Any]


def master_page(
    run: Run,
    stage: str,
    hosts_ready: int,
    launches: int,
    stalls: int,
    script_file: Path | None = None,
) -> str:
    """All metrics of the master as text; `script_file` is metrics.file, None without one."""
    samples = [
        *(f'horovod_stage{{stage="{name}"}} {int(name == stage)}' for name in STAGES),
        f"horovod_ranks {run.ranks}",
        f"horovod_hosts_ready {hosts_ready}",
        f"horovod_launches_total {launches}",
        f"horovod_stalls_total {stalls}",
    ]
    if script_file is not None:
        samples += script_samples(script_file)
    return format_page(samples)


def worker_page(slots: str, folder: Path) -> str:
    """All metrics of a worker as text; its ranks write theirs to `folder`."""
    samples = [f"horovod_slots {slots}"]
    for file in sorted(folder.iterdir()):
        if RANK_FILE.fullmatch(file.name):
            samples += script_samples(file, f'rank="{file.name}"')
    return format_page(samples)


def script_samples(file: Path, label: str = "") -> Iterator[str]:
    """The samples of a script's file with a label added, and metrics about the file itself."""
    braces = f"{{{label}}}" if label else ""
    samples, refused = parse_samples(read_script_file(file))
    yield f"horovod_script_lines_refused{braces} {refused}"
    try:
        age = max(0.0, time.time() - file.stat().st_mtime)
    except OSError:
        # Not written yet.
        return
    yield f"horovod_script_age_seconds{braces} {age:.1f}"
    yield from (add_label(sample, label) for sample in samples)


def add_label(sample: str, label: str) -> str:
    """Return a sample with a label, unless it has one of that name itself."""
    series, value = sample.rsplit(maxsplit=1)
    name, _, labels = series.rstrip("}").partition("{")
    if not label or f"{label.partition('=')[0]}=" in labels:
        return sample
    return f"{name}{{{','.join(part for part in (label, labels) if part)}}} {value}"


def format_page(samples: list[str]) -> str:
    """The samples, grouped by metric as the format asks for, with a description of our own."""
    groups: dict[str, list[str]] = {}
    for sample in samples:
        groups.setdefault(re.split(r"[{ ]", sample)[0], []).append(sample)
    lines: list[str] = []
    for name, group in groups.items():
        if name in METRICS:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} {kind}"]
        lines += group
    return "\n".join(lines) + "\n"


def parse_samples(text: str) -> tuple[list[str], int]:
    """Return the lines that are samples, and the number of lines that are something else.

    The chart's own metrics are refused: a second value would contradict the served one.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    matches = [SAMPLE.fullmatch(line) for line in lines]
    samples = [match[0] for match in matches if match and match[1] not in METRICS]
    return samples, len(lines) - len(samples)


def read_script_file(path: Path) -> str:
    """Return the text that the script has written so far; empty when there is no file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST_FILE)
    except OSError:
        return ""


def select_progress(text: str) -> list[str]:
    """The samples of a rank's file that report its progress."""
    pairs = (sample.rsplit(maxsplit=1) for sample in parse_samples(text)[0])
    return [
        f"{name} {value}"
        for name, value in pairs
        if name in PROGRESS and len(value) < LONGEST_NUMBER
    ]


def parse_progress(samples: Iterable[str]) -> ReportedProgress:
    """The numbers of such samples by name; empty without a step.

    A loss that is not finite is worth knowing, and is a string, because JSON has no such number.
    """
    reported: ReportedProgress = {}
    for sample in samples:
        series, value = sample.split()
        name, number = PROGRESS[series], float(value)
        is_finite = abs(number) < float("inf")
        if name == "loss":
            reported[name] = number if is_finite else str(number)
        elif name == "imagesPerSecond" and is_finite:
            reported[name] = number
        elif name != "imagesPerSecond" and 0 <= number <= LARGEST_COUNT:
            reported[name] = int(number)
    return reported if "step" in reported else {}


class DualStackServer(ThreadingHTTPServer):
    """Answers on IPv4 and IPv6, whichever the pod has."""

    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def make_server(text: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """A server that answers each request with `text()`. Raises OSError if the port is in use."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Leave requests out of the run's log."""

    return DualStackServer(("::", port), Handler)


def serve(text: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """Answer each request with `text()`, in a thread. Raises OSError when the port is in use."""
    server = make_server(text, port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def start(
    run: Run,
    stage: Callable[[], str],
    hosts_ready: Callable[[], int],
    launches: Callable[[], int],
    stalls: Callable[[], int],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Serve the run's metrics if the chart enables them. A failure is logged and ends nothing."""
    port = environment.get("HVD_METRICS_PORT")
    if port is None:
        return
    name = environment["HVD_METRICS_FILE"]
    file = Path(name) if name else None
    try:
        serve(
            lambda: master_page(run, stage(), hosts_ready(), launches(), stalls(), file), int(port)
        )
    except OSError as problem:
        log(f"cannot serve metrics on port {port}: {problem}")


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Serve a worker's metrics."""
    port, slots = int(environment["HVD_METRICS_PORT"]), environment["HVD_SLOTS"]
    folder = Path(environment["HVD_METRICS_DIR"])
    try:
        server = make_server(lambda: worker_page(slots, folder), port)
    except OSError as problem:
        log(f"cannot serve metrics on port {port}: {problem}")
        return 1
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Metrics in Prometheus' text format: the lines that scripts write, and the pages that pods serve.

A script may add its own metrics as lines such as `hvdchart_samples_per_second 512.3`. Each rank
writes a file of them to the directory that HVD_METRICS_DIR names (worker/main.py). Comments are
left out. Lines of another form are left out, too, and counted.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, NamedTuple

from hvd_pods.pod.connections import ConnectionServer, Limits
from hvd_pods.pod.reporting import log
from hvd_pods.pod.threads import start_thread
from hvd_pods.shared import contract, untrusted

# The metrics that are served in addition to the script's own; docs/monitoring.md explains each.
METRICS = {
    "hvdchart_stage": "Stages of the run: 1 for the current one, 0 for the others.",
    "hvdchart_ranks": "Ranks that the run starts with.",
    "hvdchart_workers_ready": "Workers whose agent answers.",
    "hvdchart_launches_total": "Times that the masters of this run have started the ranks.",
    "hvdchart_stalls_total": "Times that this master has reported ranks that others wait for.",
    "hvdchart_ranks_stalled": "Ranks that others wait for, or all if none computes.",
    "hvdchart_lost_seconds_total": "Seconds until attempts came further than those before.",
    "hvdchart_slots": "Ranks that this worker runs at most.",
    "hvdchart_gpu_utilization_ratio": "Share of the last second or less in which the GPU computed.",
    "hvdchart_gpu_memory_used_bytes": "Memory of the GPU in use, also by its driver.",
    "hvdchart_gpu_memory_bytes": "Memory that the GPU has.",
    "hvdchart_script_age_seconds": "Seconds since the script last wrote its metrics.",
    "hvdchart_script_lines_refused": "Lines of the script that are not metrics.",
}
# A sample: a name, labels, a number. No part of a line can match in two ways, which would take
# quadratic time. A number is one that Prometheus can read: it knows no negative nan.
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\[\\"n])*"'
SAMPLE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:{{((?:{LABEL}(?:, *{LABEL})*,?)?)}})?[ \t]+"
    r"([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?i:inf)|(?i:nan))"
)
LABELS = re.compile(f"({LABEL})")
MAX_SAMPLE_LINE_CHARACTERS = 4096
# Limits: the samples of scripts on a page, which its files share equally; the labels of a sample;
# and the characters of a label's name and value. The chart's PodMonitor sets wider limits, which
# hold where a script has taken the port itself: a page also has the chart's own samples, and
# Prometheus adds labels.
MAX_SERIES = 1000
MAX_LABELS = 16
MAX_LABEL_NAME_CHARACTERS = 100
MAX_LABEL_VALUE_CHARACTERS = 400
# Limits for HTTP clients. They allow for a scraper on a busy machine.
METRICS_LIMITS = Limits(seconds=10.0, size=16384, connections=64)
HEAD = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
METHOD_NOT_ALLOWED = b"HTTP/1.0 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\n\r\n"
# A page is reused for this many times the seconds that it took to create.
REUSE_FACTOR = 4.0
# The samples with which a script reports its progress, and their names in the record.
PROGRESS = {
    "hvdchart_step": "step",
    "hvdchart_counted_step": "counted",
    "hvdchart_steps": "steps",
    "hvdchart_loss": "loss",
    "hvdchart_samples_per_second": "samplesPerSecond",
    "hvdchart_size": "size",
}
# Limits of reported numbers: their characters, and the largest integer that floats count exactly.
MAX_NUMBER_CHARACTERS = 40
MAX_COUNT = 1 << 53
ReportedProgress = Dict[str, Any]


class Sample(NamedTuple):
    """A line of the format. Each label is a text such as `rank="0"`; labels are sorted by name."""

    name: str
    value: str
    labels: tuple[str, ...] = ()

    def with_label(self, label: str) -> Sample:
        """Return this sample with a label, which replaces its own one of that name.

        An empty label changes nothing. This prevents a script from posing as another rank.
        """
        if not label:
            return self
        name = label.partition("=")[0]
        others = [other for other in self.labels if other.partition("=")[0] != name]
        return self._replace(labels=tuple(sorted([*others, label])))


def parse_samples(text: str, most: int = MAX_SERIES) -> tuple[list[Sample], int]:
    """Return the first lines that are samples, up to `most`, and the number of other lines.

    The chart's own metrics are refused: a second value would contradict the served one.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    parsed = (sample for sample in map(parse_sample, lines) if sample)
    samples = list(itertools.islice(parsed, most))
    return samples, len(lines) - len(samples)


def parse_sample(line: str) -> Sample | None:
    """Parse a line that a script may add; None for an invalid line, which would break a page.

    A line is invalid if it has another form, more than MAX_SAMPLE_LINE_CHARACTERS, a metric of the
    chart's own, a label twice, more labels or longer ones than the limits, the label `__name__`, or
    a number that no float can hold.
    """
    match = SAMPLE.fullmatch(line) if len(line) <= MAX_SAMPLE_LINE_CHARACTERS else None
    if not match or match[1] in METRICS:
        return None
    labels = sorted(LABELS.findall(match[2] or ""))
    names = {label.partition("=")[0] for label in labels}
    is_too_large = abs(float(match[3])) == float("inf") and match[3][-1] not in "fF"
    if len(names) < len(labels) or "__name__" in names or is_too_large:
        return None
    parts = [label.partition("=") for label in labels]
    is_long = any(
        len(name) > MAX_LABEL_NAME_CHARACTERS or len(value) - 2 > MAX_LABEL_VALUE_CHARACTERS
        for name, _, value in parts
    )
    if is_long or len(labels) > MAX_LABELS:
        return None
    return Sample(match[1], match[3], tuple(labels))


def read_script_file(path: Path) -> str:
    """Return the text that the script has written so far; empty if there is no regular file.

    A file with hard links does not count as regular. Of a file that is longer than
    untrusted.MAX_FILE_BYTES, return the complete lines before that limit.
    """
    try:
        content = untrusted.read_file(path, has_one_name=True)
    except OSError:
        return ""
    if len(content) == untrusted.MAX_FILE_BYTES:
        # The last line may be cut within its number.
        content = content[: content.rfind(b"\n") + 1]
    return content.decode(errors="replace")


def script_samples(file: Path, label: str, most: int) -> Iterator[Sample]:
    """Yield the first samples of a script's file with a label added, and metrics about the file.

    Without a file, yield only the number of refused lines, which is 0 then.
    """
    samples, refused = parse_samples(read_script_file(file), most)
    yield Sample("hvdchart_script_lines_refused", str(refused)).with_label(label)
    try:
        age = max(0.0, time.time() - file.lstat().st_mtime)
    except OSError:
        # The script has not written the file yet.
        return
    yield Sample("hvdchart_script_age_seconds", f"{age:.1f}").with_label(label)
    yield from (sample.with_label(label) for sample in samples)


def format_page(samples: Iterable[Sample]) -> str:
    """Return the samples, grouped by metric as the format requires, with a description of our own.

    Of several samples with the same labels, which Prometheus refuses, the last one counts.
    """
    groups: dict[str, dict[str, str]] = {}
    for name, value, labels in samples:
        series = f"{name}{{{','.join(labels)}}}" if labels else name
        groups.setdefault(name, {})[series] = value
    lines: list[str] = []
    for name, group in groups.items():
        if name in METRICS:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} {kind}"]
        lines += [f"{series} {value}" for series, value in group.items()]
    return "\n".join(lines) + "\n"


def make_server(
    page: Callable[[], str], port: int, reuse_factor: float = REUSE_FACTOR
) -> ConnectionServer:
    """Return a server that responds to each request with `page()`.

    A page is reused for `reuse_factor` times as long as it took to create. Therefore a client that
    sends requests all the time leaves most of the time to others. Raises OSError if the port is in
    use.
    """
    answer = b""
    until = 0.0

    def serve_page(request: bytes, connection: socket.socket) -> bytes:
        nonlocal answer, until
        if not request.startswith(b"GET "):
            return METHOD_NOT_ALLOWED
        began = time.monotonic()
        if began >= until:
            body = page().encode()
            answer = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
            now = time.monotonic()
            until = now + reuse_factor * (now - began)
        return answer

    return ConnectionServer("", port, b"\r\n\r\n", serve_page, METRICS_LIMITS)


def start(page: Callable[[], str]) -> None:
    """Serve `page()` in a thread if the chart enables metrics by HVD_METRICS_PORT.

    If the port is in use, log it and go on.
    """
    port = os.environ.get(contract.METRICS_PORT)
    if port is None:
        return
    try:
        server = make_server(page, int(port))
    except OSError as problem:
        log(f"cannot serve metrics on port {port}: {problem}")
        return
    start_thread("serve-metrics", server.serve)


def select_progress(text: str) -> list[str]:
    """Return the samples of a rank's file that report its progress, each as `NAME VALUE`."""
    return [
        f"{sample.name} {sample.value}"
        for sample in parse_samples(text)[0]
        if sample.name in PROGRESS
        and not sample.labels
        and len(sample.value) < MAX_NUMBER_CHARACTERS
    ]


def parse_progress(samples: Iterable[str]) -> ReportedProgress:
    """Return the numbers of such samples by their names in the record; empty without a step.

    A step that the rank itself has counted is marked with `isCounted`. A loss that is not finite is
    reported as a string, because JSON has no such number. Other numbers that are not finite,
    negative counts and those above MAX_COUNT are left out. Raises KeyError or ValueError for
    samples that `select_progress` does not return.
    """
    reported: ReportedProgress = {}
    for sample in samples:
        series, value = sample.split()
        name = PROGRESS[series]
        number = float(value)
        is_finite = abs(number) < float("inf")
        if name == "loss":
            reported[name] = number if is_finite else str(number)
        elif name == "samplesPerSecond" and is_finite:
            reported[name] = number
        elif name != "samplesPerSecond" and 0 <= number <= MAX_COUNT:
            reported[name] = int(number)
    counted = reported.pop("counted", None)
    if "step" not in reported and counted is not None:
        reported.update(step=counted, isCounted=True)
    return reported if "step" in reported else {}

"""The run's state for Prometheus, served by the master while it runs.

A script may add its own metrics: rank 0 writes lines such as `horovod_images_per_second 512.3` to
the file that the value metrics.file names, on a volume that master and workers share. Comments are
left out, and so are lines of another form, which are counted.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable, Mapping

from settings import Run, log

# A sample of Prometheus' text format: a name, labels, a number.
SAMPLE = re.compile(
    r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})? +[-+]?([0-9.]+([eE][-+]?[0-9]+)?|Inf|NaN)"
)
STAGES = ("Starting", "Started", "HostsReady", "Training", "Finished", "Failed")
# Bytes that are read of a script's file, which may grow without end.
LARGEST_FILE = 1 << 20
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(run: Run, stage: str, hosts_ready: int, script_text: str | None) -> str:
    """All metrics as text; `script_text` is the content of metrics.file, None without a file."""
    lines = [
        "# HELP horovod_stage Stages of the run: 1 for the current one, 0 for the others.",
        "# TYPE horovod_stage gauge",
        *(f'horovod_stage{{stage="{name}"}} {int(name == stage)}' for name in STAGES),
        "# HELP horovod_ranks Ranks that the run starts with.",
        "# TYPE horovod_ranks gauge",
        f"horovod_ranks {run.ranks}",
        "# HELP horovod_hosts_ready Workers whose SSH server answers.",
        "# TYPE horovod_hosts_ready gauge",
        f"horovod_hosts_ready {hosts_ready}",
    ]
    if script_text is not None:
        samples, refused = parse_samples(script_text)
        lines += [
            *samples,
            "# HELP horovod_script_lines_refused Lines of metrics.file that are not a metric.",
            "# TYPE horovod_script_lines_refused gauge",
            f"horovod_script_lines_refused {refused}",
        ]
    return "\n".join(lines) + "\n"


def parse_samples(text: str) -> tuple[list[str], int]:
    """Return the lines that are samples, and the number of lines that are something else."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    samples = [line for line in lines if SAMPLE.fullmatch(line)]
    return samples, len(lines) - len(samples)


def read_script_file(name: str) -> str | None:
    """Return what the script has written so far; None if no file is named."""
    if not name:
        return None
    try:
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST_FILE)
    except OSError:
        return ""


class DualStackServer(ThreadingHTTPServer):
    """Answers on IPv4 and IPv6, whichever the pod has."""

    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(text: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """Answer each request with `text()`, in a thread. Raises OSError when the port is in use."""

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

    server = DualStackServer(("::", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def start(
    run: Run,
    stage: Callable[[], str],
    hosts_ready: Callable[[], int],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Serve the run's metrics if the chart enables them. A failure is logged and ends nothing."""
    port = environment.get("HVD_METRICS_PORT")
    if port is None:
        return
    file = environment["HVD_METRICS_FILE"]
    try:
        serve(lambda: page(run, stage(), hosts_ready(), read_script_file(file)), int(port))
    except OSError as problem:
        log(f"cannot serve metrics on port {port}: {problem}")

"""The run's state for Prometheus, served by the master while it lives.

A script may add its own: rank 0 writes lines such as `horovod_images_per_second 512.3` to the file
that the value metrics.file names, on a volume that master and workers share. Comments and lines of
another form are left out and counted.
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
# Of a file that grows without end, as much is read as a page of metrics ever has.
LARGEST_FILE = 1 << 20
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(run: Run, stage: str, hosts_ready: int, of_script: str | None) -> str:
    """All metrics as text; `of_script` is what the script's file holds, None without a file."""
    lines = [
        "# HELP horovod_stage Where the run stands: 1 for its stage.",
        "# TYPE horovod_stage gauge",
        *(f'horovod_stage{{stage="{name}"}} {int(name == stage)}' for name in STAGES),
        "# HELP horovod_ranks Ranks that the run was started for.",
        "# TYPE horovod_ranks gauge",
        f"horovod_ranks {run.ranks}",
        "# HELP horovod_hosts_ready Workers that answer.",
        "# TYPE horovod_hosts_ready gauge",
        f"horovod_hosts_ready {hosts_ready}",
    ]
    if of_script is not None:
        samples, refused = samples_of(of_script)
        lines += [
            *samples,
            "# HELP horovod_script_lines_refused Lines of metrics.file that are no metric.",
            "# TYPE horovod_script_lines_refused gauge",
            f"horovod_script_lines_refused {refused}",
        ]
    return "\n".join(lines) + "\n"


def samples_of(text: str) -> tuple[list[str], int]:
    """The lines of a script's file that are samples, and how many are something else."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    samples = [line for line in lines if SAMPLE.fullmatch(line)]
    return samples, len(lines) - len(samples)


def read_script_file(name: str) -> str | None:
    """What the script has written, None when no file is named; not written yet is empty."""
    if not name:
        return None
    try:
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST_FILE)
    except OSError:
        return ""


class DualStackServer(ThreadingHTTPServer):
    """Answers IPv4 and IPv6 alike, whichever the pod has."""

    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(text: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """Answer each request with `text()`, from a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Keep scrapes out of the run's log."""

    server = DualStackServer(("::", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def start(
    run: Run,
    stage: Callable[[], str],
    hosts_ready: Callable[[], int],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Serve the run's metrics when the chart asks for them. A port in use is logged, no more."""
    port = environment.get("HVD_METRICS_PORT")
    if port is None:
        return
    file = environment["HVD_METRICS_FILE"]
    try:
        serve(lambda: page(run, stage(), hosts_ready(), read_script_file(file)), int(port))
    except OSError as problem:
        log(f"no metrics are served: port {port}: {problem}")

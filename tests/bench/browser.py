"""What TensorBoard shows of a training's logs in a browser: Chromium, without a window.

TensorBoard runs in an image's sandbox, which has no network but its own loopback: the browser is
started in there, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from devtools.images.engines import ensure_program
from devtools.trials.sandbox import Sandbox
from tests.waiting import wait_until

PORT = 6006
ADDRESS = f"http://127.0.0.1:{PORT}"
SIZE = (1500, 1750)
# Seconds of the browser's own clock, which runs ahead while nothing is being loaded.
TIME_OF_BROWSER = 30
BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"),
    # With WebGL, lines that TensorBoard draws are missing in the picture.
    "--disable-3d-apis",
    *(f"--window-size={SIZE[0]},{SIZE[1]}", f"--virtual-time-budget={TIME_OF_BROWSER * 1000}"),
)
READ = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())"


def take_picture(inside: Sandbox, logs: str, tags: Sequence[str], file: Path) -> None:
    """Start TensorBoard on a folder of the sandbox, wait until it has read `tags`, and write what
    a browser shows to `file`, a PNG.
    """
    ensure_program("chromium", "chromium")
    options = ("--logdir", logs, "--host", "127.0.0.1", "--port", str(PORT))
    with inside.start("tensorboard", *options) as server:
        try:
            wait_until(lambda: set(tags) <= read_tags(logs), 60, f"TensorBoard to show {tags}")
            with tempfile.TemporaryDirectory(prefix="hvd-browser-") as profile:
                picture = (f"--user-data-dir={profile}", f"--screenshot={file}")
                # Without a filter, most of the cards are folded away.
                page = f"{ADDRESS}/?darkMode=false&tagFilter=.#timeseries"
                command = (*network_of(logs), *BROWSER, *picture, page)
                subprocess.run(command, check=True, capture_output=True, timeout=180)
        finally:
            server.terminate()


def network_of(logs: str) -> tuple[str, ...]:
    """What runs a command in the network of the TensorBoard that reads a folder."""
    own = Path("/proc/self/ns/net").readlink()
    for process in psutil.process_iter(["cmdline"]):
        if logs in (process.info["cmdline"] or ()):
            network = Path(f"/proc/{process.pid}/ns/net")
            if network.readlink() != own:
                return ("nsenter", f"--net={network}")
    raise ProcessLookupError(f"no TensorBoard runs on {logs}")


def read_tags(logs: str) -> set[str]:
    """The names of the figures and pictures that TensorBoard has read; none while it starts."""
    tags_of_all: set[str] = set()
    for plugin in ("scalars", "images"):
        url = f"{ADDRESS}/data/plugin/{plugin}/tags"
        try:
            read = (*network_of(logs), sys.executable, "-c", READ, url)
            runs = json.loads(subprocess.run(read, check=True, capture_output=True).stdout)
        except (ProcessLookupError, subprocess.CalledProcessError):
            return set()
        tags_of_all |= {tag for tags in runs.values() for tag in tags}
    return tags_of_all

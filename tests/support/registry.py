"""A real chart registry for a test, on a free local port, with its data in memory."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.toolchain.tools import tool

CONFIGURATION = """\
version: 0.1
log: {level: info}
storage: {inmemory: {}}
http: {addr: "127.0.0.1:0", secret: of-this-test-alone}
"""


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run a registry during the block and yield its HOST:PORT; `folder` holds its settings."""
    file = folder / "registry.yaml"
    file.write_text(CONFIGURATION)
    process = subprocess.Popen(
        [str(tool("registry")), "serve", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.wait()


def _address(process: subprocess.Popen[str]) -> str:
    """Read the address that the registry listens on from its log."""
    assert process.stderr
    lines = []
    for line in process.stderr:
        lines.append(line)
        if match := re.search(r"listening on ([0-9.]+:\d+)", line):
            # A full pipe would block the registry.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return match[1]
    raise AssertionError(f"the registry ended before it listened: {''.join(lines)}")

"""A chart registry for a test: a real one, on a free port of this machine, that keeps nothing."""

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
    """Run a registry while the block runs; its HOST:PORT. `folder` takes its configuration."""
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
    """What the registry says that it listens on."""
    assert process.stderr
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"listening on ([0-9.]+:\d+)", line):
            # A full pipe would hold it up.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return found[1]
    raise AssertionError(f"the registry ended before it listened: {''.join(said)}")

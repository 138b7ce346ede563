"""An agent alone, with the limits of a test."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import FILES
from tests.support.ports import find_port
from tests.support.release_keys import ReleaseKeys
from tests.unit.hvd_pods.worker.agent.pods import REVISION, Served, kill_all

# What worker/agent.py's main() does, with other limits.
PROGRAM = """
import json, os, sys
sys.path.insert(0, {files!r})
from hvd_pods.protocol.keys import Keys
from hvd_pods.pod import processes
from hvd_pods.worker import agent, fence, limits, pending_clients
processes.set_process_option(processes.PR_SET_CHILD_SUBREAPER, 1)
folder, name, port, revision, chosen = sys.argv[1:]
agent.Agent(
    pending_clients.listen(int(port)),
    Keys(folder, name),
    revision,
    fence.Fence(os.getpid(), ""),
    os.environ,
    limits.AgentLimits(**json.loads(chosen)),
).serve()
"""


@dataclass
class LimitedAgent(Served):
    """An agent that serves at `port`, with files that a test may change."""

    folder: Path
    release: ReleaseKeys
    process: subprocess.Popen[bytes]
    # Whether the test ends it.
    may_end: bool = False

    def kill(self) -> None:
        """End the agent, as the loss of its node does."""
        self.may_end = True
        self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def keys_folder(self) -> Path:
        return self.folder / "worker-keys"


@contextmanager
def start_limited(
    folder: Path, release: ReleaseKeys, files: int = 0, **limits: Any
) -> Iterator[LimitedAgent]:
    """Run an agent with these limits, and at most `files` open files, until the block's end."""
    port = find_port()
    folder.mkdir(exist_ok=True)
    own_keys = release.write_worker(folder / "worker-keys")
    words = [str(own_keys), release.master_name, str(port), REVISION, json.dumps(limits)]
    # By this, the processes that the test has left are found.
    mark = {"HVD_TEST_AGENT": str(port)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM.format(files=str(FILES)), *words],
            env={"PATH": os.environ["PATH"], **mark},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    if files:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
    keys = release.of_master(folder / "master-keys")
    started = LimitedAgent(port, keys, folder, release, process)
    try:
        wait_until(lambda: process.poll() is not None or started.banner(), 60, "listens")
        assert process.poll() is None, started.log
        yield started
        assert started.may_end or process.poll() is None, started.log
        assert "Traceback" not in started.log
    finally:
        process.kill()
        process.wait()
        kill_all(mark)

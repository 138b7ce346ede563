"""The staging script, run by sh as in a pod, on a volume that pods of a node share."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.unit.hvd_pods.copies import PROGRAMS

SCRIPT = PROGRAMS / "worker/stage.sh"
# Each run leaves a line, so that runs can be counted.
FETCH = 'echo ran >>"$COUNT"; mkdir -p sub; echo one >a; echo three >"sub/b c"'


class Volume:
    """A volume that pods of a node share."""

    def __init__(self, folder: Path) -> None:
        self.script = SCRIPT
        self.path = folder / "set"
        self.state = folder / "set.staging"
        self.partial = self.state / "partial"
        self.count = folder / "count"

    def start(
        self, command: str, key: str = "k1", verify: str = "Size", owner: str = "team/hvd"
    ) -> subprocess.Popen[str]:
        environment = {
            **{"PATH": os.environ["PATH"], "COUNT": str(self.count), "STAGING_OWNER": owner},
            **{"STAGING_PATH": str(self.path), "STAGING_KEY": key, "STAGING_VERIFY": verify},
        }
        return subprocess.Popen(
            ["sh", str(self.script), "sh", "-c", command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def stage(self, command: str = FETCH, **options: str) -> tuple[int, str]:
        """Run to the end: exit code and log."""
        running = self.start(command, **options)
        log, _ = running.communicate(timeout=30)
        return running.returncode, log

    @property
    def runs(self) -> int:
        """How often the command ran."""
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0

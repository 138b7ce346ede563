"""The keys of a release for tests: those of its master, and those of its workers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hvd_pods.cluster import certificates
from hvd_pods.cluster.certificates import MASTER, WORKER, Files, make_files
from hvd_pods.protocol.keys import Keys

MASTER_NAME = "master-1.hvd.team.horovod.internal"
WORKER_NAME = "worker-1.hvd.team.horovod.internal"


class ReleaseKeys:
    """Both Secrets of a release, and the folders that its pods mount."""

    def __init__(self, master_name: str = MASTER_NAME, worker_name: str = WORKER_NAME) -> None:
        self.master_name = master_name
        self.worker_name = worker_name
        self.master = make_files(MASTER, master_name)
        self.worker = make_files(WORKER, worker_name)

    def write_master(self, folder: Path) -> Path:
        """Write the files that the master's pod mounts."""
        return _write(folder, self.master, self.worker)

    def write_worker(self, folder: Path) -> Path:
        """Write the files that a worker's pod mounts."""
        return _write(folder, self.worker, self.master)

    def of_master(self, folder: Path) -> Keys:
        """Return the keys as a master uses them."""
        return Keys(str(self.write_master(folder)), self.worker_name)

    def of_worker(self, folder: Path) -> Keys:
        """Return the keys as a worker's agent uses them."""
        return Keys(str(self.write_worker(folder)), self.master_name)


def _write(folder: Path, own: Files, peer: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("tls.crt", own["tls.crt"]),
        ("tls.key", own["tls.key"]),
        ("peer-ca.crt", peer["ca.crt"]),
    ):
        (folder / name).write_bytes(content)
    return folder


def keys_of_another_time(days: float) -> ReleaseKeys:
    """Return keys that were made on another day: `days` from now, or before now if negative."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "time", _Clock(days * certificates.DAY_SECONDS))
        return ReleaseKeys()


class _Clock:
    """The functions of the module `time` that certificates.py uses, at another time."""

    gmtime = staticmethod(time.gmtime)
    strftime = staticmethod(time.strftime)

    def __init__(self, later: float) -> None:
        self._later = later

    def time(self) -> float:
        return time.time() + self._later

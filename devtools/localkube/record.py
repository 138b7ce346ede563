"""The processes that `up` has started, so that `down` stops these and no others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from devtools.common.files import write_atomic
from devtools.localkube.instance import Instance
from devtools.localkube.procs import Identity


@dataclass(frozen=True)
class Record:
    """holder: the unshare(1) that made the namespaces and waits; init: their process 1."""

    holder: Identity
    init: Identity

    def write(self, instance: Instance) -> None:
        write_atomic(instance.run / "record.json", json.dumps(asdict(self)).encode())

    @staticmethod
    def read(instance: Instance) -> Record | None:
        """None when nothing was started, or nothing was recorded before it was stopped."""
        path = instance.run / "record.json"
        if not path.exists():
            return None
        fields = json.loads(path.read_text())
        return Record(Identity(**fields["holder"]), Identity(**fields["init"]))

    def stop(self) -> None:
        """Kills process 1, and the kernel everything in its namespaces with it; returns when all of
        it has ended.
        """
        self.init.kill_and_wait()
        self.holder.kill_and_wait()

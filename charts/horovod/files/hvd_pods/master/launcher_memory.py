"""The memory and open files that the launcher's clients need in the master's container."""

from __future__ import annotations

import resource

from hvd_pods.pod.reporting import log
from hvd_pods.shared import container_memory
from hvd_pods.shared.errors import ConfigurationError
from hvd_pods.shared.launcher_options import connection_memory

# Files that the launcher opens for each client or worker, and for everything else.
FILES_PER_WORKER = 8
BASE_FILES = 1024
MIB = 1 << 20


def check_memory(clients: int, limit: int | None) -> None:
    """Raise ConfigurationError when the clients would be killed for memory."""
    needed = connection_memory(clients)
    if limit is not None and limit < needed:
        raise ConfigurationError(
            f"the launcher keeps {clients} agent connections, which need about {needed} MiB, and "
            f"the master's container may use {limit} MiB: set `master.resources.limits.memory` to "
            f"{needed}Mi or more"
        )


def raise_file_limit(workers: int) -> None:
    """Raise the limit on open files, which the launcher inherits, as far as these workers need.

    Do not raise it to the hard limit: Open MPI closes every number below the limit in each process
    that it starts, and runtimes set hard limits of a billion.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = BASE_FILES + FILES_PER_WORKER * workers
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    granted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if granted < needed:
        log(f"{workers} connections may need {needed} open files; the container's limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))


def prepare(clients: int, workers: int) -> None:
    """Make room for this launch. Raises ConfigurationError when the memory limit forbids it."""
    limit = container_memory.limit()
    check_memory(clients, None if limit is None else limit // MIB)
    raise_file_limit(max(clients, workers))

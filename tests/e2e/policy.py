"""NetworkPolicies that hold: the cluster itself, like many, takes them and does nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from devtools.localkube.instance import current_instance
from devtools.localkube.link import network_prefix
from devtools.toolchain.tools import tool


@contextmanager
def enforcing() -> Iterator[None]:
    """While inside, every new connection between pods of the local cluster is judged."""
    instance = current_instance()
    command = [
        *network_prefix(instance),
        str(tool("policy")),
        str(instance.kubeconfig),
        instance.node_name,
    ]
    pipe = subprocess.PIPE
    # When the block ends, standard input is closed; the program then removes its rule and exits.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as enforcer:
        assert enforcer.stdout is not None
        assert enforcer.stdout.readline() == "ready\n", "the enforcer did not start"
        yield

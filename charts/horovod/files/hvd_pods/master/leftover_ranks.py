"""Workers that answer and have no ranks of the present attempt: spares, and those that come back.

Ranks of an earlier attempt may still run there, when the network was cut. Each SSH session of a
newer attempt ends them (files/fence.py), and the launcher opens none with these workers.
"""

from __future__ import annotations

from typing import Mapping

from hvd_pods.common import ssh
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host, Run
from hvd_pods.master import remote
from hvd_pods.master.hosts import HostRendezvous

# Seconds in which a worker has to end them.
END_WITHIN = 60.0
# It does nothing by itself.
PROGRAM = ["common/fast_start.py"]


def end_what_is_left(run: Run, rendezvous: HostRendezvous, used: Mapping[Host, str]) -> None:
    """Open a session with each worker that answers and is not `used`, until the rendezvous ends."""
    done: set[Host] = set()
    while True:
        new = _wait_for_new(run, rendezvous, used, done)
        if new is None:
            return
        answers = remote.call(new, PROGRAM, seconds=END_WITHIN, is_stopped=lambda: rendezvous.ended)
        for host, (code, output) in answers.items():
            if code and not rendezvous.ended:
                log(f"cannot end what earlier attempts may have left on {host.name}: {output}")


def _wait_for_new(
    run: Run, rendezvous: HostRendezvous, used: Mapping[Host, str], done: set[Host]
) -> list[Host] | None:
    """Return the idle workers that are not in `done`; None at the end.

    `done` becomes those that answer: one that is gone for a while comes back with what it did.
    """
    with rendezvous.changed:
        rendezvous.changed.wait_for(
            lambda: rendezvous.ended or done ^ (rendezvous.answering.keys() - used.keys())
        )
        if rendezvous.ended:
            return None
        answering = rendezvous.addresses()
        new = [host for host in answering if host not in used and host not in done]
        done.clear()
        done.update(answering.keys() - used.keys())
        # Within the lock: the next attempt writes it as well, when this one has ended.
        ssh.write_client_config(run.ssh_port, {**answering, **used})
        return new

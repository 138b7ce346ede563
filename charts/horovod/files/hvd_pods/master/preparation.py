"""What all attempts of a master share; the first attempt that needs it prepares it.

It is on the way of each restart otherwise: a request to the API server, two calls of ssh-keygen,
one of mpirun, and an SSH session with each worker for the user's code.
"""

from __future__ import annotations

import os
from typing import Callable

from hvd_pods.cluster.keys import find_keys
from hvd_pods.cluster.kube import Api
from hvd_pods.common import ssh
from hvd_pods.common.run import Run
from hvd_pods.master import launcher_memory
from hvd_pods.master.launch import build_environment, guard_horovodrun, select_mpi
from hvd_pods.master.mpi import MpiImplementation, count_connections
from hvd_pods.master.user_code import UserCode


class Preparation:
    """The keys and the `ssh` that launchers find, the user's code, and the image's MPI."""

    def __init__(self) -> None:
        self.code = UserCode("")
        self._mpi: MpiImplementation | None = None

    def prepare(
        self, run: Run, api: Api | None, is_stopped: Callable[[], bool]
    ) -> tuple[MpiImplementation, dict[str, str]]:
        """Make what is not there yet; the MPI, and the launcher's environment for this attempt.

        Raises RunError, after which the next attempt tries again.
        """
        if self._mpi is None:
            ssh.prepare_client(find_keys(api))
            within = run.hosts_timeout if run.requirements else 0.0
            self.code = UserCode(run.code, within, is_stopped)
            self.code.unpack()
            guard_horovodrun(run)
        variables = self.code.prepare_launcher(run.mode, build_environment(run, os.environ))
        self._mpi = self._mpi or select_mpi(run, variables)
        launcher_memory.prepare(count_connections(run, self._mpi), len(run.hosts))
        self.code.forget_addresses()
        return self._mpi, variables

    @property
    def mpi(self) -> MpiImplementation:
        """The MPI, once it is prepared."""
        assert self._mpi  # noqa: S101
        return self._mpi

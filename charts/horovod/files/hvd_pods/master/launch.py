"""The launcher's command line and environment, and the launcher as it runs."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Callable, Mapping, Sequence

from hvd_pods.common import launcher_options
from hvd_pods.common.errors import ConfigurationError, LostHostError, RunError
from hvd_pods.common.fast_start import processes
from hvd_pods.common.notices import Notice
from hvd_pods.common.paths import GENERATED, PROGRAMS
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host, Run
from hvd_pods.master import mpi
from hvd_pods.master.failure import Cause, ErrorOutput
from hvd_pods.master.mpi import HOSTFILE, MpiImplementation, default_interface
from hvd_pods.master.terminating_ranks import TerminatingRanks

# An argument of a custom command that stands for the whole line with which mpirun is started.
LAUNCH = "$(LAUNCH)"
# What horovodrun calls each second in an elastic run, and the list that it prints.
DISCOVERY = GENERATED / "bin" / "hosts"
LIVE_HOSTS = GENERATED / "hosts"
# Seconds within which a signal is handled while the launcher runs.
SIGNAL_CHECK_EVERY = 0.5
# Seconds that a launcher has to end when its attempt is ended; and where it waits for hosts that
# are gone: its daemons on the others end when it is killed.
END_WITHIN, END_WITHOUT_HOSTS_WITHIN = 5.0, 1.0
# Seconds of its grace period that the master keeps, at most half of it: for ending what is left of
# the ranks, and for the bookkeeping.
RESERVE = 15.0


def write_live_hosts(hosts: Sequence[Host]) -> None:
    """Keep the list that an elastic run follows; it is complete at any moment."""
    beside = LIVE_HOSTS.with_suffix(".new")
    beside.write_text("".join(f"{host.address}:{host.slots}\n" for host in hosts))
    beside.replace(LIVE_HOSTS)
    if not DISCOVERY.exists():
        DISCOVERY.write_text(f"#!/bin/sh\nexec cat {LIVE_HOSTS}\n")
        DISCOVERY.chmod(0o755)


def needs_mpirun(run: Run) -> bool:
    """Does the run start with a line of mpirun that is built here?"""
    return run.mode == "mpirun" or (run.mode == "custom" and LAUNCH in run.args)


def select_mpi(run: Run, variables: Mapping[str, str]) -> MpiImplementation:
    """The MPI whose command line and host file to use: the image's. Raises ConfigurationError.

    horovodrun reads the host file in Open MPI's form, as do scripts that start no mpirun.
    """
    has_mpirun = shutil.which("mpirun", path=variables["PATH"]) is not None
    if not needs_mpirun(run) and not (run.mode == "custom" and has_mpirun):
        return mpi.OPEN_MPI_4
    implementation = mpi.find_mpi(variables)
    log(f"the image's mpirun is {implementation.name}")
    return implementation


def build_command(run: Run, implementation: MpiImplementation) -> list[str]:
    """The complete command line of the launcher, one argument an item.

    Raises ConfigurationError for launch.options that this launcher does not have.
    """
    if run.mode == "custom":
        return _custom(run, implementation)
    script = run.args or ["python3", str(PROGRAMS / "rank" / "check.py")]
    return [*_start(run, implementation), *script]


def _start(run: Run, implementation: MpiImplementation) -> list[str]:
    """The launcher's command line up to the ranks' own command."""
    if run.mode in ("horovodrun", "elastic"):
        launcher_options.check_options(run, run.mode)
        hosts = (
            _elastic(run) if run.elastic else ["--hostfile", str(HOSTFILE), *_nics(run.interface)]
        )
        number, port = str(run.ranks_to_start), str(run.ssh_port)
        start = ["horovodrun", "-np", number, *hosts, "--ssh-port", port]
        return [*start, *run.options, *_rank(run, binds_itself=True)]
    launcher_options.check_options(run, implementation.launcher)
    return [
        *mpi.mpirun_line(run, implementation),
        *_rank(run, binds_itself=implementation.hydra),
    ]


def _rank(run: Run, *, binds_itself: bool) -> list[str]:
    """What is started for each rank, which then checks its place and becomes the script."""
    line = ["python3", "-I", "-S", str(PROGRAMS / "rank" / "start.py")]
    if binds_itself and run.binding.to != "none":
        line += ["--bind-to", run.binding.to]
        for option, number in (
            ("--cores-per-rank", run.binding.cores_per_rank),
            ("--ranks-per-socket", run.binding.ranks_per_socket),
        ):
            line += [option, str(number)] if number else []
    return [*line, "0" if run.elastic else str(run.ranks)]


def _custom(run: Run, implementation: MpiImplementation) -> list[str]:
    """The user's command with its placeholders filled in, written as Kubernetes writes them."""
    line: list[str] = []
    for argument in run.args:
        if argument == LAUNCH:
            line += _start(run, implementation)
        else:
            filled = argument.replace("$(NP)", str(run.ranks))
            line.append(filled.replace("$(HOSTFILE)", str(HOSTFILE)))
    return line


def _elastic(run: Run) -> list[str]:
    """Return horovodrun's options for an elastic run.

    The blacklist cooldown is short: a StatefulSet creates a failed pod again under the same name.
    """
    return [
        *("--min-np", str(run.min_ranks), "--max-np", str(run.max_ranks or run.ranks)),
        *("--host-discovery-script", str(DISCOVERY), "--blacklist-cooldown-range", "1", "10"),
        # Without an interface, horovodrun looks for a common one and waits for a second host.
        *_nics(run.interface or default_interface()),
    ]


def _nics(interface: str) -> list[str]:
    return ["--network-interfaces", interface] if interface else []


def build_environment(run: Run, inherited: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment; a variable of master.env overrides the chart's."""
    own = "" if run.interface else default_interface()
    merged = {**mpi.mpirun_environment(run, own), **inherited}
    merged["PATH"] = f"{GENERATED / 'bin'}:{inherited.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    return merged


class Launcher:
    """The running launcher, to which a request to end is passed on."""

    def __init__(self) -> None:
        self.stopped = False
        # The number of the present launch.
        self.number = 0
        # The seconds that this pod has to end, and what asks the ranks to: how many were asked.
        self.grace = 0.0
        self.ask_ranks: Callable[[Sequence[Host]], int] = lambda hosts: 0
        # Gets each line of the ranks' error output.
        self.follow: Callable[[str], None] = lambda line: None
        self.leavers = TerminatingRanks()
        self.reset()
        signal.signal(signal.SIGTERM, self._stop)

    def reset(self) -> None:
        """Forget the launch before."""
        self.number += 1
        self.leavers.reset()
        self._process: subprocess.Popen[bytes] | None = None
        # Why this launch was ended while the run may go on, and when it is killed for that.
        self.problem: RunError | None = None
        self._kill_at = self._end_at = math.inf
        # The hosts of the ranks, and until when those may save that were asked to leave, by name.
        self.hosts: Callable[[], Sequence[Host]] = list
        self.leaving: dict[str, float] = {}
        # What ranks told of their exceptions, and of their exit codes and signals.
        self.raised: list[Notice] = []
        self.failed: list[Notice] = []
        # How long the launcher ran, in seconds.
        self.seconds = 0.0
        self._errors: ErrorOutput | None = None

    def was_stopped(self) -> bool:
        """Whether this pod was asked to end."""
        return self.stopped

    def run(
        self, arguments: list[str], environment: Mapping[str, str], directory: Path = Path()
    ) -> int:
        """Run to the end and return the exit code, 128 + signal number when a signal ended it.

        The launchers start the ranks in the directory that they are started in.
        """
        program, began = arguments[0], time.monotonic()
        if shutil.which(program, path=environment["PATH"]) is None:
            raise ConfigurationError(f"the image has no {program} on PATH ({environment['PATH']})")
        log(f"$ {shlex.join(arguments)}")
        if self.stopped:
            return 128 + signal.SIGTERM
        self._process = subprocess.Popen(
            arguments,
            env=dict(environment),
            cwd=directory,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stderr  # noqa: S101
        self._errors = ErrorOutput(self._process.stderr, 2, self.follow)
        if self.problem or (self.stopped and self._end_at == math.inf):
            # The request came while the launcher was being started, and was not passed on.
            self._process.send_signal(signal.SIGTERM)
        # A signal that comes just before a blocking call would only be handled after it.
        waiting = threading.Thread(target=self._process.wait, daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(SIGNAL_CHECK_EVERY)
            if time.monotonic() > self._kill_at:
                self._process.kill()
            if time.monotonic() > self._end_at:
                self._end_at = math.inf
                self.stop()
        code = self._process.wait()
        # Its SSH clients, or what a script has left, would run beside the next attempt.
        end_session(self._process.pid)
        self.seconds = time.monotonic() - began
        return 128 - code if code < 0 else code

    def find_cause(self, hosts: Sequence[Host], code: int) -> Cause | None:
        """Return why the launcher ended with `code`; None when its output does not say it."""
        if self._errors is None:
            return None
        return self._errors.find_cause(hosts, code, self.raised, self.failed)

    def may_save(self, host: Host) -> bool:
        """Whether a host was asked to leave, and its ranks still have time."""
        return time.monotonic() < self.leaving.get(host.name, 0.0)

    def stop(self) -> None:
        """End the ranks, and start no others."""
        self.stopped = True
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def abort(self, problem: RunError) -> None:
        """End this launch, which then fails with `problem`; the run may go on. From any thread."""
        if self.problem is None:
            is_lost = isinstance(problem, LostHostError)
            within = END_WITHOUT_HOSTS_WITHIN if is_lost else END_WITHIN
            self.problem, self._kill_at = problem, time.monotonic() + within
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            return
        self.stopped = True
        if self._process is None or self._process.returncode is not None:
            log("this pod is terminating")
            return
        seconds = self.grace - min(RESERVE, self.grace / 2)
        log(f"this pod is terminating: the ranks have {seconds:.0f} s to save")
        self._end_at = time.monotonic() + seconds
        threading.Thread(target=self._ask_ranks, daemon=True).start()

    def _ask_ranks(self) -> None:
        with self.leavers.asking():
            asked = self.ask_ranks(self.hosts())
        # Ranks that were not started by files/rank.py know the launcher's way only.
        if not asked:
            self.stop()


def end_session(leader: int) -> None:
    """Kill what is left of the session of processes that this one led."""
    for pid, _, _, session in processes():
        if session == leader:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

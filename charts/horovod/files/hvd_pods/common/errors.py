"""Why a run cannot go on, each with the exit code by which the Job retries it or not."""

from __future__ import annotations

import signal

from hvd_pods.common.exit_codes import BAD_CONFIGURATION


class RunError(Exception):
    """The run cannot go on, for the reason in the message. Another attempt may help.

    `repeats` names the cause when it is sure to happen again on any rank, and is empty otherwise.
    `is_permanent`: unless the attempt had trained, the next one would meet the cause at once.
    """

    exit_code = 1
    repeats = ""
    is_permanent = False


class ConfigurationError(RunError):
    """The run cannot go on, and another attempt cannot help."""

    exit_code = BAD_CONFIGURATION


class WorkersTimeoutError(RunError):
    """No missing worker came within the time-out. Not retried: it would wait just as long."""


class InterruptedRunError(RunError):
    """The master was asked to end. Its Job may make another one."""

    exit_code = 128 + signal.SIGTERM


class LaunchError(RunError):
    """The launcher failed. Its exit code becomes the master's: a rank may have chosen it."""

    def __init__(
        self, message: str, exit_code: int, repeats: str = "", is_permanent: bool = False
    ) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        self.exit_code = exit_code
        self.repeats = repeats


class LostWorkerError(LaunchError):
    """Workers were lost while they had ranks, which does not mean that the script is wrong."""


class WorkerTerminatedError(LaunchError):
    """The attempt ended because a worker was terminated, which does not count as a failure."""


class ResizedError(LaunchError):
    """The attempt was ended because workers have come, which the next one uses: no failure."""


class NotANumberError(LaunchError):
    """The attempt was ended because the loss that the script reports is not a number."""

    def __init__(self) -> None:
        super().__init__("the loss is NaN (`launch.failOnNaN`)", 1, repeats="NaN")


class SupersededError(ConfigurationError):
    """Another master controls the workers now, and a retry of this Job would take them back."""


class LeaseEndedError(ConfigurationError):
    """Nobody has renewed the lease of the session that the run belongs to."""

"""The reasons why a run cannot go on, each with the exit code that decides on the Job's retry."""

from __future__ import annotations

import signal

from hvd_pods.shared.exit_codes import BAD_CONFIGURATION


class RunError(Exception):
    """The run cannot go on, for the reason in the message. A retry may help.

    `repeats` names the cause if it is certain to recur on any rank; otherwise it is empty.
    `is_permanent`: the next attempt would fail from the same cause at once, unless this attempt
    trained.
    """

    exit_code = 1
    repeats = ""
    is_permanent = False


class ConfigurationError(RunError):
    """The run cannot go on, and a retry cannot help."""

    exit_code = BAD_CONFIGURATION


class WorkersTimeoutError(RunError):
    """No missing worker came within the timeout. There is no retry: it would wait just as long."""


class InterruptedRunError(RunError):
    """The master was asked to end. Its Job may create another one."""

    exit_code = 128 + signal.SIGTERM


class LaunchError(RunError):
    """The launcher failed. The master exits with its exit code: a rank may have chosen it."""

    def __init__(
        self, message: str, exit_code: int, repeats: str = "", is_permanent: bool = False
    ) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        self.exit_code = exit_code
        self.repeats = repeats


class LostWorkerError(LaunchError):
    """Workers with ranks were lost. This does not mean that the script is wrong."""


class WorkerTerminatedError(LaunchError):
    """The attempt ended because a worker was terminated. This does not count as a failure."""


class ResizedError(LaunchError):
    """The master ended the attempt because workers joined. The next one uses them: no failure."""


class NotANumberError(LaunchError):
    """The master ended the attempt because the loss that the script reports is not a number."""

    def __init__(self) -> None:
        super().__init__("the loss is NaN (`launch.failOnNaN`)", 1, repeats="NaN")


class SupersededError(ConfigurationError):
    """Another master controls the workers, and a retry of this Job would take them back."""


class LeaseEndedError(ConfigurationError):
    """The lease of the session that the run belongs to was not renewed."""

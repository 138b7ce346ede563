"""The errors that hvdchart reports as one message, and the exit code of each.

Exit codes: 0 done; 1 `render --check` found a difference; 2 wrong use of the command line
(Typer's own); 3 the spec is wrong; 4 the chart refuses the values; 5 a file could not be read or
written; 6 Helm failed; 7 the cluster cannot be used as asked; 8 the run failed; 9 an image cannot
be run, or lacks what the chart needs; 124 a time limit passed. Any other exception is a defect and
shows a traceback.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import ClassVar

from hvd_pods.shared.untrusted import printable


class HvdchartError(Exception):
    """An error for the user: what is wrong, where, and what to do. Each class has its exit code."""

    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        cls.exit_code = exit_code or cls.exit_code


class DifferenceError(HvdchartError):
    """The file on disk is not what the spec renders (`render --check`)."""


class SpecError(HvdchartError, exit_code=3):
    """A refused spec, or a refused option that sets a key of a spec.

    The message has the place, the key, the problem, and what was expected. `errors` are all errors
    of the spec. The place and the rest are those of the first; the text has a line for each.
    """

    # A file of another kind has a hundred wrong keys, and the first ones show its kind.
    _MAX_LINES: ClassVar[int] = 20

    def __init__(self, place: str, path: str, problem: str, expected: str) -> None:
        subject = f"{path}: " if path else ""
        message = f"{place}: {subject}{problem}; expected {expected}"
        # Names of keys and files may have line ends and other characters that are not printable.
        super().__init__(printable(message, keeps=""))
        self.place = place
        self.path = path
        self.problem = problem
        self.expected = expected
        self.errors: tuple[SpecError, ...] = (self,)

    @classmethod
    def join(cls, errors: Sequence[SpecError]) -> SpecError:
        """Join several errors into one; there is at least one.

        Each text is kept once. The message has at most _MAX_LINES of them, `errors` has all.
        """
        by_text = {str(error): error for joined in errors for error in joined.errors}
        first, *more = by_text.values()
        if not more:
            return first
        joined = cls(first.place, first.path, first.problem, first.expected)
        lines = list(by_text)[: cls._MAX_LINES]
        if len(by_text) > len(lines):
            lines.append(f"and {len(by_text) - len(lines)} more errors")
        joined.args = ("\n".join(lines),)
        joined.errors = tuple(by_text.values())
        return joined


class ErrorCollector:
    """Collects the errors of several steps, so that one mistake does not hide the next."""

    def __init__(self) -> None:
        self._errors: list[SpecError] = []

    def add(self, error: SpecError) -> None:
        """Keep an error, and continue."""
        self._errors.append(error)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Keep the SpecError of what runs in this context, and continue after it.

        What follows the error in the context does not run. Other exceptions are raised.
        """
        try:
            yield
        except SpecError as error:
            self._errors.append(error)

    def raise_all(self) -> None:
        """Raise what was collected as one SpecError; nothing if there is none."""
        if self._errors:
            raise SpecError.join(self._errors)


class ValuesError(HvdchartError, exit_code=4):
    """Values that the chart's schema refuses."""


class FileError(HvdchartError, exit_code=5):
    """A file that cannot be read or written."""


class HelmError(HvdchartError, exit_code=6):
    """Helm failed; the text contains its message. `problem` and `remedy` are its two parts."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


class ClusterError(HvdchartError, exit_code=7):
    """The cluster cannot be reached, denies a request, or lacks something that is needed."""


class NoRunError(ClusterError):
    """The namespace has no run of this name, or the run was removed."""

    def __init__(self, name: str, namespace: str, reason: str = "") -> None:
        elsewhere = f"list its runs: hvdchart list -n {namespace}, or those of --all-namespaces"
        super().__init__(f"no run {name} in namespace {namespace}: {reason or elsewhere}")


class RunFailedError(HvdchartError, exit_code=8):
    """A run in the cluster failed; the text gives the reason."""


class CallError(HvdchartError):
    """A function, an argument or a result that cannot be sent to or from the pods."""


class ImageError(HvdchartError, exit_code=9):
    """An image that cannot be run here, or that lacks something that the chart needs."""


class TimeLimitError(HvdchartError, exit_code=124):
    """A time limit has passed; timeout(1) has the same exit code."""

"""Finds why the launcher failed, in one line: the first failed rank, its worker, and its error.

The reason is buried under the launcher's report and the errors of the ranks that lost their peer.
Each rule examines all evidence; the first rule that finds a cause decides.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Collection, NamedTuple, Sequence

from hvd_pods.master import failure_causes, failure_signs
from hvd_pods.master.gpu_problems import find_gpu_problem
from hvd_pods.rules.events import Cause, Notice
from hvd_pods.rules.worker_names import find_worker
from hvd_pods.shared.launcher_output import HYDRA_REPORT, REPORT
from hvd_pods.shared.run import Worker
from hvd_pods.shared.untrusted import one_line

# PyTorch's prefix of its own messages.
PYTORCH_TAG = re.compile(r"\[rank(\d{1,7})\]:")
# How a launcher's final report begins.
REPORT_START = re.compile(
    rf"(?:{REPORT}|{HYDRA_REPORT})|^Process \d+ exit with|^\[hvd\] rank \d+ on \S+ ended"
)
# Characters of a rank's last line that are shown.
MAX_LAST_LINE_CHARACTERS = 300
# The exit code of argparse and other parsers for a wrong command line.
USAGE_EXIT_CODE = 2


class OutputLine(NamedTuple):
    """A line of output, or an exception in it: when it was printed, its rank if that is known."""

    at: float
    rank: int | None
    text: str


class LauncherReport(NamedTuple):
    """What the launcher prints of a failed rank; `signal` is 0 if it names none."""

    rank: int
    signal: int


@dataclass(frozen=True)
class Evidence:
    """The evidence about a launcher that has ended with `exit_code`.

    since: earlier evidence is not the cause. lines and exceptions: of the error output, since then.
    exception_notices: those of ranks about exceptions (rank/exception_notice.py). exit_notices:
    those about their exit codes and signals (rank/rank_end.py).
    """

    workers: Sequence[Worker]
    exit_code: int
    since: float
    lines: Sequence[OutputLine]
    exceptions: Sequence[OutputLine]
    exception_notices: Sequence[Notice]
    exit_notices: Sequence[Notice]

    def worker_of(self, rank: int | None) -> str:
        """Return the name of a rank's worker; empty if it is not known."""
        worker = None if rank is None else find_worker(rank, self.workers)
        return worker.name if worker else ""


@dataclass(frozen=True)
class FailedRank:
    """The rank that failed first, according to the launcher and the rank's own notice.

    named: the rank in the launcher's report, None without one. number: the rank in the report or
    the notice. signal: the signal that ended the rank, 0 for an exit. limit: the memory limit of
    its container in MiB, if the rank was killed at that limit.
    """

    named: int | None
    number: int | None
    worker: str
    signal: int
    exit_code: int
    limit: float | None

    @property
    def has_exited(self) -> bool:
        """Whether the rank exited: no known signal ended it."""
        return self.signal == 0


def find_cause(evidence: Evidence) -> Cause | None:
    """Return why the launcher failed; None if the cause is unknown."""
    failed = [notice for notice in evidence.exit_notices if notice["at"] > evidence.since]
    reports = _read_reports(evidence.lines)
    # Accept exceptions of any time from a failed rank: it may end long after its exception.
    ranks = {notice["rank"] for notice in failed} | {report.rank for report in reports}
    raised = [
        notice
        for notice in evidence.exception_notices
        if notice["at"] > evidence.since or notice["rank"] in ranks
    ]
    recent = replace(evidence, exception_notices=raised, exit_notices=failed)
    rank = _find_failed(recent, reports)
    cause = _find_exception(recent, rank) or _find_printed(recent, rank)
    if cause or rank.number is None:
        return cause
    return _find_broken_gpu(recent) or _describe_end(recent, rank, rank.number)


def _read_reports(lines: Sequence[OutputLine]) -> list[LauncherReport]:
    """Return the reports of failed ranks in the launcher's output."""
    matches = [
        match
        for pattern in failure_signs.FAILED_RANK_PATTERNS
        for line in lines
        if (match := pattern.search(line.text))
    ]
    return [
        LauncherReport(int(match["rank"]), int(match.groupdict().get("signal") or 0))
        for match in matches
    ]


def _find_failed(evidence: Evidence, reports: Sequence[LauncherReport]) -> FailedRank:
    """Return the rank that failed first: the launcher's report names it, or else a notice."""
    late = _find_late_ranks(evidence)
    report = min(reports, key=lambda report: report.rank in late, default=None)
    notice = _choose_notice(evidence, report, late)
    return _describe_failed(evidence, report, notice)


def _choose_notice(
    evidence: Evidence, report: LauncherReport | None, late: Collection[int]
) -> Notice | None:
    """Return the notice about the end of the reported rank, or of any rank without a report."""
    notices = [
        notice
        for notice in evidence.exit_notices
        if report is None or notice["rank"] == report.rank
    ]
    return min(notices, key=lambda notice: notice["rank"] in late, default=None)


def _find_late_ranks(evidence: Evidence) -> set[int]:
    """Return the ranks that lost a peer, or that the launcher ended.

    The launcher may name one of them before the peer.
    """
    late = {
        notice["rank"] for notice in evidence.exception_notices if is_consequence(notice["text"])
    }
    return late.union(
        notice["rank"] for notice in evidence.exit_notices if notice["status"] == -signal.SIGTERM
    )


def _describe_failed(
    evidence: Evidence, report: LauncherReport | None, notice: Notice | None
) -> FailedRank:
    """Return what the report and the notice of the same rank say of its end.

    A signal in the report counts more than the notice.
    """
    named = report.rank if report else None
    number = named
    code = evidence.exit_code
    by_signal = report.signal if report else 0
    if notice and by_signal == 0:
        # Hydra names no rank.
        number = notice["rank"]
        by_signal = max(0, -notice["status"])
        code = code if by_signal else notice["status"]
    limits = [
        notice["limit"]
        for notice in evidence.exit_notices
        if notice["rank"] == number and "limit" in notice
    ]
    return FailedRank(
        named=named,
        number=number,
        worker=notice["worker"] if notice else evidence.worker_of(number),
        signal=by_signal,
        exit_code=code,
        limit=limits[0] if limits else None,
    )


def _find_exception(evidence: Evidence, failed: FailedRank) -> Cause | None:
    """Return the first exception in the ranks' notices that is not a consequence."""
    causes = (notice for notice in evidence.exception_notices if not is_consequence(notice["text"]))
    notice = next(causes, None)
    if notice and (failed.has_exited or notice["rank"] == failed.number):
        return failure_causes.cause_of_exception(notice["rank"], notice["worker"], notice["text"])
    return None


def _find_printed(evidence: Evidence, failed: FailedRank) -> Cause | None:
    """Return the first exception in the output, of a rank that has exited."""
    if not failed.has_exited:
        return None
    printed = evidence.exceptions
    # Ignore errors of ranks that lost their peer, unless there are no others.
    causes = [line for line in printed if not is_consequence(line.text)]
    candidates = causes if causes or failed.number is not None else printed
    first = next(
        (line for line in candidates if line.rank is None or failed.named in (None, line.rank)),
        None,
    )
    if first is None:
        return None
    # The rank that the launcher names may have ended only because it lost its peer.
    is_known = first.rank is None and len(causes) == len(printed)
    rank = failed.number if is_known else first.rank
    return failure_causes.cause_of_exception(rank, evidence.worker_of(rank), first.text)


def _find_broken_gpu(evidence: Evidence) -> Cause | None:
    """Return a broken GPU as the cause, whichever rank ended first.

    PyTorch's watchdogs abort ranks without a Python exception, and other lines may be from any
    rank.
    """
    notice = next(
        (raised for raised in evidence.exception_notices if _is_broken(raised["text"])), None
    )
    if notice:
        return failure_causes.cause_of_exception(notice["rank"], notice["worker"], notice["text"])
    line = next((line for line in evidence.lines if _is_broken(line.text)), None)
    if line is None:
        return None
    tag = PYTORCH_TAG.match(line.text)
    rank = int(tag[1]) if tag else line.rank
    text = one_line(line.text, MAX_LAST_LINE_CHARACTERS)
    return failure_causes.cause_of_exception(rank, evidence.worker_of(rank), text)


def _describe_end(evidence: Evidence, failed: FailedRank, rank: int) -> Cause:
    """Describe the rank's end: a memory limit, a signal, or an exit code and the last line."""
    rank_prefix = failure_causes.describe_rank(rank, failed.worker)
    if failed.limit is not None:
        return failure_causes.cause_of_memory(rank_prefix, failed.limit)
    if not failed.has_exited:
        return Cause(
            rank_prefix, failure_causes.describe_signal(failed.signal), is_sure_to_repeat=False
        )
    text = f"exit code {failed.exit_code}{find_last_words(evidence.lines, rank)}"
    return Cause(rank_prefix, text, is_sure_to_repeat=failed.exit_code == USAGE_EXIT_CODE)


def find_last_words(lines: Sequence[OutputLine], rank: int) -> str:
    """Return a rank's last line, such as a message of `sys.exit` or argparse; empty if unknown."""
    # If lines have no tags, take the last line of any rank.
    tag = rank if any(line.rank is not None for line in lines) else None
    before = takewhile(lambda line: not REPORT_START.search(line.text), lines)
    texts = [line.text for line in before if line.rank == tag and not _is_of_launcher(line.text)]
    if not texts or is_consequence(texts[-1]):
        return ""
    return f', after "{one_line(texts[-1], MAX_LAST_LINE_CHARACTERS)}"'


def _is_of_launcher(line: str) -> bool:
    return any(pattern.match(line) for pattern in failure_signs.LAUNCHER_LINES)


def is_consequence(text: str) -> bool:
    """Return whether a rank raised this because it lost its peer.

    Horovod raises the same exception for an NCCL error.
    """
    return not find_gpu_problem(text) and any(words in text for words in failure_signs.CONSEQUENCES)


def _is_broken(text: str) -> bool:
    gpu = find_gpu_problem(text)
    return gpu is not None and gpu.is_broken

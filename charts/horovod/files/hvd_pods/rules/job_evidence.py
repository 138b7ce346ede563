"""What the master may conclude about its Job from what it has read.

Only observations count: another Job's master, or two reads without a Job (404). A refusal (403) is
no evidence about the Job: an upgrade revokes the right to read it, and so does a deleted
RoleBinding, or an authorizer that fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from hvd_pods.rules.job_state import DELETED, REPLACED, UNREADABLE, JobReading, read_found_job
from hvd_pods.shared.objects import Object, shorten_object


@dataclass(frozen=True)
class JobEvidence:
    """What was read: the Job of the name that this master's Job has, or why it was not.

    `status`: that of a response without a Job, 0 without a response.
    """

    own_uid: str
    job: Object | None = None
    status: int = 0
    # Whether there is another Job's master; None if the pods were not read.
    is_replaced: bool | None = None
    # A second read has found no Job either.
    is_gone: bool = False

    @property
    def _is_ending(self) -> bool:
        """Whether the Job is this master's own one, and somebody has deleted it."""
        return self._is_own and self.job is not None and "deletionTimestamp" in self.job["metadata"]

    @property
    def _is_own(self) -> bool:
        uid = self.job["metadata"].get("uid") if self.job else None
        return uid in (None, self.own_uid)

    @property
    def depends_on_masters(self) -> bool:
        """Whether the conclusion depends on the pods of masters."""
        is_missing = self.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
        return is_missing or self._is_ending

    @property
    def depends_on_second_read(self) -> bool:
        """Whether the conclusion depends on a second read, some time after the first one."""
        return self.status == HTTPStatus.NOT_FOUND and not self.is_replaced

    def conclude(self) -> JobReading:
        """Return what this master knows of its Job."""
        if self.job is not None:
            # Another Job of its name has replaced it: the workers belong to that Job's run.
            is_other = not self._is_own or (self._is_ending and self.is_replaced is not False)
            return REPLACED if is_other else read_found_job(shorten_object(self.job))
        if self.depends_on_masters and self.is_replaced:
            return REPLACED
        if not self.is_gone:
            return UNREADABLE
        # Workers that are left running cost less than a lost training.
        return REPLACED if self.is_replaced is None else DELETED

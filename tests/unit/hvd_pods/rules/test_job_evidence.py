"""What follows from reads of the Job: only observations count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hvd_pods.rules.job_evidence import JobEvidence
from hvd_pods.rules.job_state import DELETED, REPLACED, UNREADABLE, JobKind

GOING = {"uid": "uid-1", "deletionTimestamp": "2026-01-01T10:00:00Z"}


@pytest.mark.parametrize(
    ("status", "is_replaced", "is_gone", "expected"),
    [
        (404, True, False, REPLACED),
        (404, False, True, DELETED),
        # Workers that are left running cost less than a lost training.
        (404, None, True, REPLACED),
        # The second read has found it, or has failed.
        (404, False, False, UNREADABLE),
        (404, None, False, UNREADABLE),
        (403, True, False, REPLACED),
        (403, False, False, UNREADABLE),
        (403, None, False, UNREADABLE),
        (503, None, False, UNREADABLE),
        (0, None, False, UNREADABLE),
    ],
)
def test_job_that_was_not_read_is_gone_only_if_that_was_observed(
    status: int, is_replaced: bool | None, is_gone: bool, expected: Any
) -> None:
    evidence = JobEvidence("uid-1", status=status)
    assert evidence.depends_on_masters is (status in (403, 404))
    evidence = replace(evidence, is_replaced=is_replaced)
    assert evidence.depends_on_second_read is (status == 404 and not is_replaced)
    assert replace(evidence, is_gone=is_gone).conclude() == expected


@pytest.mark.parametrize(
    ("metadata", "is_replaced", "is_own"),
    [
        ({"uid": "uid-1"}, None, True),
        # The API server of a test gives no UIDs.
        ({}, None, True),
        ({"uid": "uid-2"}, None, False),
        (GOING, False, True),
        (GOING, True, False),
        (GOING, None, False),
    ],
)
def test_job_that_was_read_counts_unless_another_one_may_have_replaced_it(
    metadata: dict[str, str], is_replaced: bool | None, is_own: bool
) -> None:
    evidence = JobEvidence("uid-1", job={"metadata": metadata})
    assert evidence.depends_on_masters is (metadata == GOING)
    assert not evidence.depends_on_second_read
    found = replace(evidence, is_replaced=is_replaced).conclude()
    assert found.kind == (JobKind.FOUND if is_own else JobKind.REPLACED)

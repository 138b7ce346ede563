"""How long `helm test` waits for what it needs: it ends before Helm stops waiting for it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common.errors import RunError
from hvd_pods.common.fence import EPOCH
from hvd_pods.common.run import Run
from hvd_pods.master import selftest
from tests.fakes.api import FakeApi
from tests.unit.podfiles.master_pod import JOB
from tests.unit.podfiles.runs import make_run


def test_it_says_what_it_waits_for_before_it_is_ended(
    api_server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[float] = []
    monkeypatch.setenv("HVD_RUN", "")
    monkeypatch.setattr(selftest, "parse_run", lambda text: make_run())
    monkeypatch.setattr(selftest, "test", lambda *given: ends.append(given[-1]))
    before = time.monotonic()
    assert selftest.main() == 0
    (until,) = ends
    assert before + 230 <= until <= time.monotonic() + 230, "ten seconds before its limit of 240 s"


@pytest.mark.parametrize(
    ("hosts_timeout", "left", "waits", "ends"),
    [(1800, 100, 100, 1100), (7, 100, 7, 1100), (1800, -3, 1, 1001)],
)
@pytest.mark.parametrize("lost", ["", "hvd-master-2"])
def test_hosts_are_waited_for_while_time_is_left(
    monkeypatch: pytest.MonkeyPatch,
    hosts_timeout: float,
    left: float,
    waits: float,
    ends: float,
    lost: str,
) -> None:
    done: list[Any] = []

    def train(run: Run, *_: Any) -> None:
        done.append((run.hosts_timeout, run.wait_until))
        raise RunError("hosts are missing")

    provider = SimpleNamespace(
        provide=lambda: done.append("provide"), restore=lambda: done.append("restore")
    )
    monkeypatch.setenv("HVD_TESTED_JOB", JOB)
    monkeypatch.setenv(EPOCH, "")
    monkeypatch.setattr(selftest, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    monkeypatch.setattr(selftest, "wait_for_end", lambda *_: None)
    monkeypatch.setattr(selftest, "Workers", lambda *_: provider)
    monkeypatch.setattr(selftest, "train", train)
    lease: Any = SimpleNamespace(epoch=7, lost=lost, take=lambda *_: None)
    launcher: Any = SimpleNamespace(was_stopped=lambda: False)
    run, api = make_run(hostsTimeoutSeconds=hosts_timeout), object()
    with pytest.raises(RunError, match="hosts are missing"):
        selftest.test(api, run, launcher, lease, 1000.0 + left)  # type: ignore[arg-type]
    # The master that has taken the record needs the workers.
    assert done == ["provide", (waits, ends), *(["restore"] if not lost else [])]

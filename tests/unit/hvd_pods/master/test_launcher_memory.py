"""Room for the launcher's clients: memory that is checked, and files that may be open."""

from __future__ import annotations

import resource

import pytest

from hvd_pods.master import launcher_memory
from hvd_pods.shared.errors import ConfigurationError


def test_clients_that_do_not_fit_are_refused_with_the_memory_to_give() -> None:
    launcher_memory.check_memory(257, 1156)
    launcher_memory.check_memory(1000, None)
    with pytest.raises(ConfigurationError, match=r"master\.resources\.limits\.memory` to 1156Mi"):
        launcher_memory.check_memory(257, 1155)


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        # 1024 + 8 for each of 1000 workers; not the billion that some runtimes allow.
        (1024, 1 << 30, 9024),
        (1024, 4096, 4096),
        (20000, 20000, 20000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_file_limit_is_raised_as_far_as_workers_need(
    soft: int,
    hard: int,
    after: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    launcher_memory.raise_file_limit(1000)
    assert limits == {resource.RLIMIT_NOFILE: (after, hard)}
    said = capsys.readouterr().out
    assert all(number in said for number in ("1000", "9024", "4096")) == (hard == 4096)

"""What a master makes of the line that it gets before anything is encrypted."""

from __future__ import annotations

import re

import pytest

from hvd_pods.protocol.banner import find_banner_problem, format_banner
from hvd_pods.shared.no_answer import STALE


@pytest.mark.parametrize("revision", ["r1", None], ids=str)
def test_worker_of_this_revision_is_one(revision: str | None) -> None:
    assert find_banner_problem(format_banner("r1").decode().strip(), 2222, revision) is None


@pytest.mark.parametrize(
    ("banner", "said", "is_stale"),
    [
        (
            "HVD-AGENT-1 r0",
            rf"{STALE}: .*'HVD-AGENT-1 r0', .* HVD-AGENT-1 r1$",
            True,
        ),
        ("HVD-AGENT-1 r11", rf"{STALE}: .*'HVD-AGENT-1 r11', ", True),
        ("SSH-2.0-OpenSSH_9.2", "port 2222 .*'SSH-2.0-", False),
        ("", "port 2222 .*''", False),
        ("220 mail", "port 2222 .*'220 mail'", False),
    ],
)
def test_other_server_is_named(banner: str, said: str, is_stale: bool) -> None:
    found = find_banner_problem(banner, 2222, "r1")
    assert found
    assert re.match(said, found.reason)
    assert found.is_stale is is_stale

"""The memory limit of a container, with both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvd_pods.shared import container_memory


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "limit", "killed"),
    [
        ({"memory.max": "3221225472\n", "memory.events": "oom 1\noom_kill 1\n"}, 3 << 30, 1),
        ({"memory.max": "max\n", "memory.events": "oom 0\noom_kill 0\n"}, None, 0),
        (
            {
                "memory/memory.limit_in_bytes": "1024\n",
                "memory/memory.oom_control": "under_oom 0\noom_kill 2\n",
            },
            1024,
            2,
        ),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None, 0),
        ({}, None, 0),
    ],
)
def test_limit_and_what_was_killed_for_it_are_read(
    tmp_path: Path, files: dict[str, str], limit: int | None, killed: int
) -> None:
    root = write(tmp_path, files)
    assert container_memory.limit(root) == limit
    assert container_memory.count_killed(root) == killed

"""A worker's main program and the messages of its sshd, for which a shell stands in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_pods.worker import main
from tests.unit.hvd_pods.copies import FILES

SERVE = (
    f"import sys; sys.path.insert(0, {str(FILES)!r}); from hvd_pods.worker import main;"
    "main.DRAIN_WITHIN = float(sys.argv[2]);"
    "sys.exit(main.serve(['sh', '-c', sys.argv[1]], main.Signals()))"
)


def serve(script: str, drain_within: float) -> subprocess.CompletedProcess[str]:
    """Run a worker with a script in place of its sshd."""
    return subprocess.run(
        [sys.executable, "-c", SERVE, script, str(drain_within)],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_all_messages_of_an_sshd_that_ends_are_logged_but_those_of_clients_that_left() -> None:
    left = "kex_exchange_identification: Connection closed by remote host"
    # More than a pipe holds, so that the last ones are still on their way when sshd has ended.
    script = f"seq 30000 >&2; echo '{left}' >&2; echo 'cannot bind' >&2; exit 3"
    done = serve(script, main.DRAIN_WITHIN)
    assert done.returncode == 3, done.stderr[-500:]
    assert done.stderr.splitlines() == [*map(str, range(1, 30001)), "cannot bind"]
    assert "sshd has ended with exit code 3" in done.stdout


@pytest.mark.parametrize("left", ["folder", "file", "link"])
def test_what_ranks_have_left_for_metrics_does_not_end_the_next_worker(
    tmp_path: Path, left: str
) -> None:
    folder, elsewhere = tmp_path / "metrics", tmp_path / "elsewhere"
    (elsewhere / "0").mkdir(parents=True)
    if left == "folder":
        shutil.copytree(elsewhere, folder)
    elif left == "file":
        folder.touch()
    else:
        folder.symlink_to(elsewhere)
    main.start_metrics({"HVD_METRICS_DIR": str(folder)})
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert list(folder.iterdir()) == []
    assert (elsewhere / "0").is_dir()

"""`hvdchart run`: what its options become in the ranks, and a script that cannot train."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.command import hvdchart, hvdchart_in_namespace, namespace_options
from tests.support.namespace import Namespace

SHOW = """
import os, sys
from pathlib import Path
given = [os.environ["LEVEL"], os.environ["key"], Path("/keys/key").read_text()]
given.append(Path("/scratch").is_dir())
limits = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
limit = int(next(Path(each) for each in limits if Path(each).is_file()).read_text()) >> 20
print("RANK", os.environ["RANK"], *given, limit, sys.argv[1:], flush=True)
"""


def image_of(image: dict[str, str]) -> list[str]:
    """The options for an image of Python alone, whose ranks the master starts."""
    reference = f"{image['repository']}:{image['tag']}"
    return ["--image", reference, "--set", "launch.mode=direct", "--cpu", "100m"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def test_options_reach_the_ranks(
    namespace: Namespace, python_image: dict[str, str], script: Path
) -> None:
    namespace.kubectl("create", "secret", "generic", "s", "--from-literal=key=hidden")
    script.write_text(SHOW)
    options = ["--memory", "256Mi", "--env", "LEVEL=2", "--secret", "s", "--secret", "s:/keys"]
    options += ["--volume", "scratch=emptyDir:/scratch", *image_of(python_image)]
    words = ["--", "--lr", "0 1"]
    done = hvdchart(namespace, "run", str(script), *options, *namespace_options(namespace), *words)
    lines = [line for line in done.stdout.splitlines() if "RANK" in line]
    seen = "2 hidden hidden True 256 ['--lr', '0 1']"
    assert sorted(lines) == [f"[{rank}] RANK {rank} {seen}" for rank in (0, 1)]


def test_broken_script_ends_after_one_attempt_with_its_remedy(
    namespace: Namespace, python_image: dict[str, str], script: Path
) -> None:
    script.write_text("import pandas_of_nobody\n")
    options = ["--memory", "512Mi", *image_of(python_image)]
    hvdchart(namespace, "run", str(script), *options, *namespace_options(namespace), code=8)
    status = hvdchart_in_namespace(namespace, "status", "train", code=None).stdout
    assert "add pandas_of_nobody to requirements.txt" in status
    assert "attempt 2" not in status

"""The user's code on its way to a worker: a real sshd, and the command that the master runs."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.hvd_pods.worker.ssh.pods import (
    PYTHON,
    WORKER,
    SshPods,
    start_ssh_pods,
)
from tests.wheels import make_wheel

pytestmark = pytest.mark.slow

DELIVER = """
from pathlib import Path
from hvd_pods.common.run import Pod
from hvd_pods.master import remote, user_code
# In pods both have the same path.
remote.PROGRAMS = Path({worker_files!r}, "hvd_pods")
code = user_code.UserCode({version!r}, 60.0)
code.unpack()
code.deliver({{HOST: Pod("127.0.0.1")}})
"""


def deliver(pods: SshPods, version: str, **files: bytes) -> str:
    """Hand the mounted code and these Python files to the worker as a master does; its log."""
    for name, content in files.items():
        (pods.master.root / "code-source" / f"{name}.py").write_bytes(content)
    return pods.master.call(DELIVER.format(worker_files=str(pods.worker.files), version=version))


@pytest.fixture
def image() -> Iterator[Path]:
    """Packages of an image that has pip: the tests' own, where every user may read them."""
    spec = importlib.util.find_spec("pip")
    assert spec is not None
    assert spec.origin is not None
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        Path(name).chmod(0o755)
        shutil.copytree(Path(spec.origin).parent, Path(name) / "pip")
        yield Path(name)


def test_requirements_are_installed_before_the_ranks_start(sshd: None, image: Path) -> None:
    """By an unprivileged user, from a wheel that comes with the code."""
    with start_ssh_pods(4321, PYTHONPATH=str(image)) as pods:
        source = pods.master.root / "code-source"
        wheel = make_wheel(source, "hvdleaf")
        (source / "requirements.txt").write_text(f"./{wheel.name}\n")
        log = deliver(pods, "v1")
        assert "requirements.txt: pip runs on 1 hosts, at most 60 s" in log
        assert "requirements.txt: 1 hosts have installed hvdleaf-1.0" in log
        show = f"{PYTHON} -c 'import hvdleaf; print(hvdleaf.VERSION)'"
        done = pods.master.ssh(WORKER, show)
        assert (done.returncode, done.stdout) == (0, b"1.0\n"), done.stderr

        (source / "requirements.txt").unlink()
        deliver(pods, "v2")
        done = pods.master.ssh(WORKER, show)
        assert b"No module named 'hvdleaf'" in done.stderr, "the code does not ask for it any more"

"""The user's code on its way to a worker: a real sshd, and the command that the master runs."""

from __future__ import annotations

import pytest

from tests.unit.podfiles.ssh.pods import PYTHON, REVISION, WORKER, SshPods

unprivileged = pytest.mark.parametrize("ssh_pods", [4321], indirect=True, ids=["unprivileged"])
DELIVER = """
import sys; sys.path.insert(0, {files!r})
from pathlib import Path
import remote, user_code
from settings import Host
# In pods both have the same path.
remote.FILES = Path({worker_files!r})
code = user_code.UserCode({version!r})
code.unpack()
code.deliver({{Host({worker!r}, {address!r}, 1, "hvd-worker", {revision!r}): "127.0.0.1"}})
"""


def deliver(pods: SshPods, version: str, **files: bytes) -> str:
    """Hand code with these Python files to the worker as a master does, and return its log."""
    source = pods.master.root / "code-source"
    for name, content in files.items():
        (source / f"{name}.py").write_bytes(content)
    program = DELIVER.format(
        files=str(pods.master.files),
        worker_files=str(pods.worker.files),
        version=version,
        worker=WORKER,
        address=f"{WORKER}.hvd",
        revision=REVISION,
    )
    done = pods.master.run(PYTHON, "-I", "-c", program)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@unprivileged
def test_worker_has_the_code_of_the_latest_run_alone(ssh_pods: SshPods) -> None:
    # More than a pipe holds, so that a side that does not read would block.
    assert "is on 1 hosts" in deliver(ssh_pods, "v1", train=b"print(1)", data=b"#" * 200_000)
    deliver(ssh_pods, "v2", train=b"print(2)")
    code = ssh_pods.worker.root / "code"
    assert [path.name for path in code.iterdir()] == ["v2"]
    assert (code / "v2" / "train.py").read_bytes() == b"print(2)"
    assert (code / "v2" / "data.py").stat().st_size == 200_000

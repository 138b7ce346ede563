"""A worker as a whole: what it holds, and with what it ends."""

from __future__ import annotations

import io
import os
import signal
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import replace_in
from hvd_pods.shared import exit_codes
from tests.support.release_keys import ReleaseKeys
from tests.unit.hvd_pods.worker.agent.pods import PYTHON, AgentPod, Pod, all_commands, start_agent

pytestmark = pytest.mark.slow


@pytest.fixture
def ending() -> Iterator[AgentPod]:
    """A worker that may end."""
    with start_agent() as started:
        yield started


def give_gpu(pod: Pod) -> None:
    """Give a pod the file of a GPU, and a library of which the worker can load nothing."""
    (pod.root / "nvidia0").touch()
    programs = pod.files / "hvd_pods"
    replace_in(programs / "shared/thread_counts.py", 'S = "/dev"', f'S = "{pod.root}"', 1)
    replace_in(programs / "worker/gpus.py", '"libnvidia-ml.so.1"', '"libc.so.6"', 1)


def test_reader_of_gpus_survives_attempts_and_ends_with_the_worker() -> None:
    """An attempt whose fence waited for the process would never begin where the driver hangs."""
    with start_agent(give_gpu) as pod:
        path = pod.pod.generated / "gpus.sock"
        connect = f"python3 -c 'import socket; socket.socket(1).connect(\"{path}\")'"
        before = pod.run(connect, fence=1)
        after = pod.run(connect, fence=2)
        assert (before.exit_code, after.exit_code) == (0, 0), after.errors
        pod.process.kill()
        name = f"{pod.pod.files}/hvd_pods/worker/gpus.py".encode()
        wait_until(lambda: name not in all_commands(), 60, "has ended")


@pytest.mark.promise("worker ends with its agent")
def test_worker_ends_with_its_agent(ending: AgentPod) -> None:
    """The kubelet then starts the container again, and nothing of it is left."""
    os.kill(ending.agent, signal.SIGKILL)
    assert ending.process.wait(60) == 128 + signal.SIGKILL
    assert " 137" in ending.log


@pytest.mark.parametrize(("in_queue", "code"), [("", 0), ("1", 128 + signal.SIGTERM)])
def test_worker_that_is_deleted_has_succeeded_except_in_a_queue(in_queue: str, code: int) -> None:
    with start_agent(HVD_IN_QUEUE=in_queue) as pod:
        pod.process.terminate()
        assert pod.process.wait(60) == code, pod.log


def test_keys_of_the_master_are_in_no_worker(worker: AgentPod) -> None:
    found = worker.run(f"cat {worker.pod.root}/keys/*; env").output
    own = [worker.release.worker[name].strip() in found for name in ("tls.crt", "tls.key")]
    of_master = [worker.release.master[name].strip() in found for name in ("tls.crt", "tls.key")]
    assert (own, of_master) == ([True, True], [False, False])
    assert worker.release.master["ca.crt"].strip() in found


def test_worker_without_its_keys_ends_with_the_reason_and_no_retry(
    release: ReleaseKeys,
) -> None:
    # Not pytest's folder, which only its own user may enter.
    with tempfile.TemporaryDirectory(prefix="agent-pods-") as name:
        Path(name).chmod(0o755)
        pod = Pod(Path(name) / "worker", release)
        (pod.root / "keys/tls.key").unlink()
        done = pod.run(
            PYTHON,
            "-I",
            "-S",
            str(pod.files / "hvd_pods/worker/main.py"),
            HVD_AGENT_PORT="2222",
            HVD_REVISION="r1",
            HVD_MASTER_NAME=release.master_name,
            HVD_METRICS_DIR=str(pod.root / "metrics"),
        )
        termination = (pod.generated / "termination-log").read_text()
    assert done.returncode == exit_codes.BAD_CONFIGURATION
    assert "agent.generation=N" in done.stderr.decode()
    assert "agent.generation=N" in termination


def test_code_is_unpacked_anew_over_planted_files(
    worker: AgentPod,
) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"right"))
    folder = worker.pod.root / "code" / "v1"
    planted = f"mkdir -p {folder}/sub; echo wrong >{folder}/train.py; echo x >{folder}/numpy.py"
    elsewhere = f"ln -s {folder} {folder.parent}/v2"
    assert worker.run(f"{planted}; {elsewhere}").exit_code == 0

    def unpack(name: str) -> bytes:
        with worker.own("pod/code_archive.py", name) as program:
            program.give(content.getvalue())
            program.give(b"")
            assert program.wait() == 0, program.errors
        return worker.run(f"cd {folder.parent}/{name} && find . -type f && cat train.py").output

    assert [unpack("v1"), unpack("v2")] == [b"./train.py\nright"] * 2
    assert worker.run(f"ls {folder.parent}").output == b"v2\n"

"""Notice to leave: a worker's own processes, asked to end as a pod is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.library import keep
from hvd_pods.library.keep.packed_state import pack
from tests.unit.hvd_pods.support.notices import Master
from tests.unit.hvd_pods.support.programs import Program
from tests.unit.hvd_pods.worker.agent.pods import AgentPod, start_agent

pytestmark = pytest.mark.slow

FENCE = 7
RANK_4 = {"worker": os.uname().nodename, "rank": 4}
LEAVING = {**RANK_4, "kind": "leaving", "seconds": 77.0}
ENDED = {**RANK_4, "kind": "ended"}
# Waits for a signal, says that it saves, and does so when the test lets it.
SCRIPT = """
import os, signal, sys
def save(number, frame):
    os.write(1, b"saving\\n")
    open("{folder}/go-{rank}").read()
    with open("{folder}/checkpoint-{rank}", "a") as file:
        file.write("x")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    signal.pause()
"""
IDLE = "import time; print('ready', flush=True); time.sleep(600)"
RANK = (
    "env HVD_SLOTS=1 OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=1"
    " OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1"
    " python3 -I {files}/hvd_pods/rank/start.py 1 python3 -u {script}"
)


@pytest.fixture
def leaving() -> Iterator[AgentPod]:
    """A worker that may end."""
    with start_agent() as started:
        yield started


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The notices that a master takes, which lets ranks end when all that it knows have ended."""
    master = Master(monkeypatch)
    taken: list[dict[str, Any]] = []
    waiting: list[int] = []

    def answer(notice: dict[str, Any], connection: int) -> None:
        taken.append(notice)
        waiting.append(connection)
        known = {notice["rank"] for notice in taken if notice["kind"] in ("leaving", "asked")}
        if known == {notice["rank"] for notice in taken if notice["kind"] == "ended"}:
            master.server.release(waiting)

    master.on_wait = answer
    return taken


@contextmanager
def running_rank(worker: AgentPod, rank: int = 4, content: str = SCRIPT) -> Iterator[Program]:
    """A rank that a launcher has started, and that handles SIGTERM."""
    folder = worker.pod.generated
    os.mkfifo(folder / f"go-{rank}")
    (folder / f"go-{rank}").chmod(0o666)
    script = folder / f"train-{rank}.py"
    script.write_text(content.format(folder=folder, rank=rank))
    line = RANK.format(files=worker.pod.files, script=script, rank=rank)
    given = {"HVD_NOTICES": os.environ["HVD_NOTICES"]}
    with worker.shell(line, FENCE, variables=given) as program:
        program.read_until(b"ready\n")
        yield program


def ask(worker: AgentPod, *words: str, run: str = "") -> tuple[int, bytes, bytes]:
    """Run worker/graceful_termination.py as the master does: its exit code, output and errors."""
    given = {"HVD_NOTICES": os.environ["HVD_NOTICES"]}
    own = worker.own(
        "worker/graceful_termination.py", *words, fence=FENCE, variables=given, run=run
    )
    with own as program:
        code = program.wait()
    return code, program.output, program.errors


class Saving(NamedTuple):
    """A worker that was asked to end, and its two ranks, which save."""

    worker: AgentPod
    first: Program
    second: Program

    def let_save(self, rank: int) -> None:
        (self.worker.pod.generated / f"go-{rank}").write_text("")

    def saved(self, rank: int) -> str:
        """How often a rank has saved: an x each time."""
        checkpoint = self.worker.pod.generated / f"checkpoint-{rank}"
        return checkpoint.read_text() if checkpoint.exists() else ""


@pytest.fixture
def saving(leaving: AgentPod, notices: object) -> Iterator[Saving]:
    # The master follows the progress until its launch ends, over a connection of its own.
    with (
        leaving.own("worker/report_progress.py", "1", fence=FENCE) as follows,
        running_rank(leaving, 4) as first,
        running_rank(leaving, 5) as second,
    ):
        follows.step(0)
        leaving.process.terminate()
        first.read_until(b"saving\n")
        second.read_until(b"saving\n")
        yield Saving(leaving, first, second)


def test_terminating_worker_notifies_the_master_and_takes_no_attempt(
    saving: Saving, notices: list[dict[str, Any]]
) -> None:
    assert notices == [LEAVING, {**LEAVING, "rank": 5}], "the master does not know why"
    wait_until(lambda: not saving.worker.banner(), 20, "the next attempt cannot begin here")


def test_launcher_of_a_rank_that_has_saved_does_not_end_those_that_save(
    saving: Saving, notices: list[dict[str, Any]]
) -> None:
    """It would when it learns that the first one has ended."""
    saving.let_save(4)
    wait_until(lambda: ENDED in notices, 60, "the master knows that one rank has ended")
    assert (saving.first.exit_code, saving.saved(5)) == (None, "")
    assert saving.worker.process.poll() is None


def test_all_ranks_of_a_worker_that_is_asked_to_end_save_before_it_does(
    saving: Saving, notices: list[dict[str, Any]]
) -> None:
    """Once, although the kubelet may ask again."""
    saving.worker.process.terminate()
    saving.let_save(4)
    wait_until(lambda: ENDED in notices, 60, "the master knows that one rank has ended")
    saving.let_save(5)
    assert saving.first.wait() == saving.second.wait() == 143, "the launcher does not learn how"
    saving.first.close()
    saving.second.close()
    assert saving.worker.process.wait(9) == 0
    assert [saving.saved(4), saving.saved(5)] == ["x", "x"]
    assert notices[2:] == [ENDED, {**ENDED, "rank": 5}]


KEEPS = """
import os, sys
sys.path.insert(0, "{folder}/../bin/hvd_pods/library")
os.environ.update(HVD_RUN_ID="one", OUTPUT_PATH="{folder}/../output")
import keep
state = keep.State(losses=[])
for _ in range(7):
    state.commit()
print("ready", flush=True)
while True:
    try:
        os.read(os.pipe()[0], 1)
    except BaseException:
        continue
"""
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, lambda *_: None){KEEPS}"


@pytest.mark.parametrize("content", [KEEPS, STUBBORN], ids=["ranks end", "ranks never end"])
def test_worker_that_is_asked_to_end_saves_what_is_kept_in_its_memory(
    notices: object, content: str
) -> None:
    """A planned end is no crash; also where ranks do not end before the kubelet kills them."""
    with start_agent(HVD_GRACE_SECONDS="2") as worker:
        root = worker.pod.root
        with running_rank(worker, content=content):
            worker.process.terminate()
            checkpoint = root / "output/keep-main.state"
            wait_until(checkpoint.exists, 60, "the checkpoint is written")
            assert keep.read_file(checkpoint).key.step == 7


LATE = """
import signal, time
def end(*_):
    while not os.path.exists(os.environ["OUTPUT_PATH"] + "/keep-main.state"):
        time.sleep(0.05)
    state.commit()
    os._exit(143)
signal.signal(signal.SIGTERM, end)
"""


def test_what_a_rank_keeps_after_the_worker_has_saved_is_saved_as_well(notices: object) -> None:
    content = f"import os\n{LATE}{KEEPS}"
    with (
        start_agent(HVD_GRACE_SECONDS="4") as worker,
        running_rank(worker, content=content) as rank,
    ):
        worker.process.terminate()
        assert rank.wait() == 143
        rank.close()
        assert worker.process.wait(60) == 0
        assert keep.read_file(worker.pod.root / "output/keep-main.state").key.step == 8


def test_worker_without_ranks_ends_at_once(leaving: AgentPod) -> None:
    leaving.process.terminate()
    assert leaving.process.wait(9) == 0
    assert "Traceback" not in leaving.log


def test_connection_of_a_master_keeps_no_terminating_worker(
    leaving: AgentPod, notices: list[dict[str, Any]]
) -> None:
    """The grace period, in which nothing would happen any more, may be long."""
    with running_rank(leaving) as rank:
        leaving.process.terminate()
        rank.read_until(b"saving\n")
        (leaving.pod.generated / "go-4").write_text("")
        assert rank.wait() == 143
        # Its connection stays open.
        assert leaving.process.wait(20) == 0
    assert notices == [LEAVING, {**RANK_4, "kind": "ended"}]


def test_master_that_is_asked_to_end_asks_each_rank_once(
    leaving: AgentPod, notices: list[dict[str, Any]]
) -> None:
    with running_rank(leaving) as rank:
        assert [ask(leaving), ask(leaving)] == [(0, b"1\n", b"")] * 2
        rank.read_until(b"saving\n")
        (leaving.pod.generated / "go-4").write_text("")
        assert rank.wait() == 143
        assert rank.output == b"", "it was asked again while it saved"
    assert notices == [{**RANK_4, "kind": "asked"}, {**RANK_4, "kind": "ended"}]


def test_master_that_is_asked_to_end_learns_that_there_are_no_ranks(
    leaving: AgentPod, notices: list[dict[str, Any]]
) -> None:
    assert ask(leaving) == (0, b"0\n", b"")
    assert notices == []


# The run whose state is sharded.
SHARDED = "run-3"


@pytest.mark.parametrize(
    ("content", "kept", "word", "number"),
    [
        pytest.param(IDLE, "run-1", "look", b"1 7 2\n", id="state kept"),
        pytest.param(IDLE, "run-2", "look", b"0 7 2\n", id="another run's state"),
        pytest.param(SCRIPT, "run-1", "look", b"0 7 2\n", id="saves by itself"),
        pytest.param(SCRIPT, "run-1", "kept", b"1\n", id="state kept, and saves by itself"),
        pytest.param(IDLE, "run-2", "kept", b"0\n", id="nothing kept"),
        pytest.param(IDLE, SHARDED, "kept", b"0\n", id="state of one number of ranks"),
    ],
)
def test_ranks_may_stay_if_their_state_is_kept_and_they_would_not_save(
    notices: object, content: str, kept: str, word: str, number: bytes
) -> None:
    with start_agent() as worker:
        root = worker.pod.root
        folder = root / "shm" / kept
        folder.mkdir(parents=True)
        packed = pack(keep.StepKey(0, 1), {"fixed size": "2" if kept == SHARDED else ""})
        run = SHARDED if kept == SHARDED else "run-1"
        (folder / "main-shared.a").write_bytes(packed)
        (worker.pod.generated / "finished").write_text("7 2")
        with running_rank(worker, content=content):
            program = f"{worker.pod.files}/hvd_pods/worker/graceful_termination.py"
            line = f"HVD_KEEP={root}/shm python3 -I {program}"
            given = {"HVD_NOTICES": os.environ["HVD_NOTICES"]}
            done = worker.run(f"{line} {word}", FENCE, run=run, variables=given)
        assert (done.output, done.errors) == (number, b"")

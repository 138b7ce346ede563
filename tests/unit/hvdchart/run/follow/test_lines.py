"""Lines of pods as a person reads them."""

from __future__ import annotations

import pytest

from hvd_pods.shared.contract import COMMAND
from hvdchart.run.follow.lines import readable_lines
from hvdchart.run.follow.logs import LogLine
from hvdchart.run.state.newest import NewestRun
from hvdchart.run.state.release import Release
from hvdchart.script.options import RUN_COMMAND
from tests.unit.hvdchart.objects import job

EDGE = "-" * 74
BOX = [
    EDGE,
    "Primary job  terminated normally, but 1 process returned",
    "a non-zero exit code. Per user-direction, the job has been aborted.",
    EDGE,
    EDGE,
    "mpirun detected that one or more processes exited with non-zero status, thus causing",
    "the job to be terminated. The first process to do so was:",
    "",
    "  Process name: [[42,1],1]",
    "  Exit code:    1",
    EDGE,
]
OWN = [EDGE, "epoch 1", EDGE, EDGE, "epoch 2", EDGE]
NOTE = "I0000 00:00:1 port.cc:153] oneDNN custom operations are on. You may see slightly different"
PEER = [
    EDGE,
    "An MPI communication peer process has unexpectedly disconnected.  This",
    "usually indicates a failure in the peer process (e.g., a crash or",
    "",
    "  Local host: loop-worker-0",
    EDGE,
]
CONNECTION = (
    "[hvd +0.1s] agent connection from ::ffff:198.18.2.5: fence number 1795884, argv fb43, ended: 0"
)


def made_by(command: str = "") -> NewestRun:
    """A run that a command has made, with `fullnameOverride: train`."""
    item = job(name="train-master-1a")
    item["spec"]["template"]["metadata"] = {"annotations": {COMMAND: command}}
    return NewestRun(Release("hvd", jobs=[item], stateful_sets=[], pods=[], events=[]))


def shown(*lines: str, pod: str = "train-master-1a-x") -> list[str]:
    """The texts, each with a name where it has one."""
    worded = readable_lines([LogLine(pod, line) for line in lines], made_by())
    return [f"[{line.pod}] {line.text}" if line.pod else line.text for line in worded]


@pytest.mark.parametrize("box", [BOX, PEER], ids=["failure", "lost peer"])
def test_boxes_of_launchers_are_left_out(box: list[str]) -> None:
    assert shown("before", *box, "after") == ["before", "after"]


def test_connections_of_agents_are_left_out() -> None:
    assert shown("ready", CONNECTION, pod="train-worker-0") == ["[worker-0] ready"]


def test_tags_that_mpirun_puts_into_a_line_are_left_out() -> None:
    """C++ writes a message in pieces, and Open MPI tags each of them."""
    tag = "[1,0]<stderr>:"
    assert shown(f"{tag}[{tag}30{tag}.{tag}19: x{tag}", f"{tag}[1,1]<stderr>:") == [
        "[0] [30.19: x",
        "[0] [1,1]<stderr>:",
    ]


def test_lines_of_dashes_that_a_script_prints_stay() -> None:
    assert shown(*OWN) == OWN


def test_box_without_an_end_hides_no_more_than_a_box_has() -> None:
    lines = [f"line {number}" for number in range(99)]
    assert shown(*BOX[:2], *lines)[-1] == "line 98"


def test_notes_of_tensorflow_are_left_out_of_each_rank() -> None:
    assert shown(f"[1]<stderr>:{NOTE}", "[1,0]<stdout>:loss 1") == ["[0] loss 1"]


@pytest.mark.parametrize(
    ("pod", "name"),
    [
        ("train-worker-12", "[worker-12] x"),
        ("train-master-1a-x", "x"),
        ("train-masterful-0", "[masterful-0] x"),
        ("other", "[other] x"),
    ],
)
def test_line_has_the_short_name_of_its_pod(pod: str, name: str) -> None:
    assert shown("x", pod=pod) == [name]


def test_words_of_the_master_alone_are_replaced_and_a_gap_is_reported_once() -> None:
    said: list[str] = []
    texts = ("[hvd] raise `worker.number`", "raise `worker.number`", NOTE, NOTE)
    lines = [LogLine("train-master-1", text) for text in texts]
    worded = readable_lines(lines, made_by(RUN_COMMAND), said.append)
    assert [line.text for line in worded] == ["[hvd] raise `--workers`", "raise `worker.number`"]
    assert len(said) == 1

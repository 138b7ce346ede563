"""What of the pods' lines a person reads: which rank or pod they are of, without noise. Pure.

Launchers put boxes around each error, whose cause the master says in one line, and TensorFlow tells
in each rank how it computes. Such lines are left out; `--raw` shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from hvd_pods.common.launcher_output import HYDRA_REPORT, REPORT, TENSORFLOW_NOTES
from hvdchart.run.logs import LogLine
from hvdchart.run.ranks import split_line

# A line of dashes begins a box, if one of these lines follows; the next such line ends it.
_EDGE = re.compile(r"-{60,}$")
_BOX = re.compile(rf"{REPORT}|A system call failed during shared memory")
_HYDRA = re.compile(rf"=   (?:{HYDRA_REPORT}|RANK \d+ PID|KILLED BY|EXIT CODE|CLEANING UP|YOU CAN)")
# No box of a launcher has more lines.
_MOST_LINES = 20
_NOTES = re.compile(
    rf"{TENSORFLOW_NOTES}|To enable the following instructions: "
    r"|Unable to register cu(?:FFT|DNN|BLAS) factory|computation placer already registered"
    r"|failed call to cuInit: |Could not find cuda drivers on your machine"
    r"|Failed call to cudaGetRuntimeVersion"
)
_LEFT_OUT = "lines of the launcher and of TensorFlow are left out: --raw shows them"


def readable_lines(
    lines: Iterable[LogLine],
    release: str,
    *,
    word: Callable[[str], str] = str,
    report: Callable[[str], object] = lambda text: None,
) -> Iterator[LogLine]:
    """The lines without noise, each with its rank where that is known, or its pod's short name.

    Those of the master have no name. `word` words what the chart's own programs say,
    and `report` gets a remark when the first line is left out.
    """
    # By pod and rank: a line of dashes that may begin a box, and how many lines of one have passed.
    held: dict[tuple[str, int | None], LogLine] = {}
    boxes: dict[tuple[str, int | None], int] = {}
    is_told = False
    for line in lines:
        rank, text = split_line(line.text)
        key = (line.pod, rank)
        name = _short(line.pod, release) if rank is None else str(rank)
        shown = LogLine(name, word(text) if text.startswith("[hvd") else text)
        before = held.pop(key, None)
        is_edge = bool(_EDGE.match(text))
        is_noise = key in boxes or bool(_HYDRA.match(text) or _NOTES.search(text))
        if before and _BOX.match(text):
            boxes[key] = 0
            is_noise = True
        elif before:
            yield before
        if key in boxes:
            boxes[key] += 1
            if is_edge or boxes[key] > _MOST_LINES:
                del boxes[key]
        elif is_edge:
            held[key] = shown
            continue
        if not is_noise:
            yield shown
        elif not is_told:
            report(_LEFT_OUT)
            is_told = True
    yield from held.values()


def _short(pod: str, release: str) -> str:
    """worker-0 of train-worker-0; empty for a master."""
    name = pod.removeprefix(f"{release}-")
    return "" if re.match("master(-|$)", name) else name

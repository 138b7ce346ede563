"""What of the pods' lines a person reads: which rank or pod they are of, without noise. Pure.

Launchers put boxes around each error, whose cause the master says in one line, and TensorFlow tells
in each rank how it computes. Such lines are left out; `--raw` shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from hvdchart.run.logs import LogLine
from hvdchart.run.ranks import TAG

# A line of dashes begins a box, if one of these lines follows; the next such line ends it.
_EDGE = re.compile(r"-{60,}$")
_BOX = re.compile(
    r"Primary job  terminated|(?:mpirun|prterun|orterun)\b.* (?:detected|noticed|has exited)"
    r"|MPI_ABORT was invoked|A system call failed during shared memory"
)
_HYDRA = re.compile(r"=   (?:BAD TERMINATION|RANK \d+ PID|KILLED BY|EXIT CODE|CLEANING UP|YOU CAN)")
# No box of a launcher has more lines.
_MOST_LINES = 20
_NOTES = re.compile(
    r"oneDNN custom operations are on|This TensorFlow binary is optimized to use"
    r"|To enable the following instructions: |All log messages before absl::InitializeLog"
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
    held: dict[tuple[str, str], LogLine] = {}
    boxes: dict[tuple[str, str], int] = {}
    is_told = False
    for line in lines:
        tag = TAG.match(line.text)
        text = line.text[tag.end() :] if tag else line.text
        key = (line.pod, tag[1] if tag else "")
        name = tag[1] if tag else _short(line.pod, release)
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

"""Shows in a worker what its ranks do: `stacks.py [--json] [RANK...]`, by default all of its ranks.

With --json, each rank is a line with an object: `rank`, `shown`, which is what to say of it, and
`place`, which is where its script is.

A rank writes its own Python stack when it gets SIGNAL: a debugger would need rights that a
container does not have.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common import hostile, paths, processes
from hvd_pods.rank import rank_registry
from hvd_pods.rank.rank_registry import STACK_SIGNAL

STATES = {
    "T": "is stopped by a signal: something has sent it SIGSTOP",
    "t": "is stopped by a debugger",
    "D": "waits for a disk or a file server, and cannot be interrupted",
}
# Seconds in which all ranks have to write, and between two looks at what one has written.
ANSWER_WITHIN = 8.0
SETTLED = 0.1
# The outer frames of a fork are the chart's own.
OWN_FRAME = re.compile(r'^  File ".*/hvd_pods/warm/\w+\.py", line .*\n?', re.M)
# A frame as faulthandler writes it. Of more than so many, the outer ones are left out.
FRAME = re.compile(r'^  File "([^"\n]+)", line (\d{1,9}) in (.+)', re.M)
MOST_FRAMES = 400
# Folders of the user's code, below a digest, and of what is nobody's own.
SCRIPTS = re.compile(rf"{paths.CODE}/[^/.][^/]*/")
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/horovod/", "<frozen ")
LONGEST_PLACE = 200


def ask(script: rank_registry.Script) -> str | None:
    """Ask a rank for its stack: what to say, or None while it writes it. Raises OSError."""
    state = STATES.get(processes.read_stat(script.pid)[0], "")
    if state:
        return state
    # Without a handler, it would end the process.
    if not rank_registry.has_signal(script.pid, STACK_SIGNAL, "SigCgt"):
        return (
            "shows no Python stack: it is still starting, or its command is not python, or has the "
            "option -E, -I or -S"
        )
    with suppress(OSError):
        os.truncate(rank_registry.stack_file(script.rank), 0)
    os.kill(script.pid, STACK_SIGNAL)
    return None


def read(rank: int, pid: int, until: float) -> str:
    """Return the stack that a rank has written, when it adds no more lines."""
    # On a busy machine, the rank may pause between two lines.
    before = b""
    now = b""
    is_late = False
    while not is_late:
        time.sleep(SETTLED)
        # In this order: what was written until then is read.
        is_late = time.monotonic() > until
        # The process has taken the signal, and its handler, which blocks it, has ended.
        has_ended = not rank_registry.has_signal(pid, STACK_SIGNAL, "ShdPnd", "SigBlk")
        with suppress(OSError):
            now = hostile.read_file(Path(rank_registry.stack_file(rank)))
        # A script may block the signal for ever.
        if now and (is_late or (now == before and has_ended)):
            return "shows its Python stack:\n" + OWN_FRAME.sub("", now.decode(errors="replace"))
        before = now
    return "shows no Python stack: its log has it, or it does not react to signals"


def find_place(stack: str) -> str:
    """Where a script is by its stack, as FILE:LINE in FUNCTION; empty for a text without frames.

    That is the innermost frame of the user's own code, else that of no library.
    """
    frames = [frame.groups() for frame in islice(FRAME.finditer(stack), MOST_FRAMES)]
    own = [frame for frame in frames if SCRIPTS.match(frame[0])]
    others = [frame for frame in frames if not any(part in frame[0] for part in LIBRARIES)]
    for file, number, function in (own or others or frames)[:1]:
        return hostile.one_line(f"{SCRIPTS.sub('', file)}:{number} in {function}", LONGEST_PLACE)
    return ""


def main() -> int:
    """Print what each rank does: a line, and its stack."""
    is_json = sys.argv[1:2] == ["--json"]
    numbers = sys.argv[2 if is_json else 1 :]
    running = {script.rank: script for script in rank_registry.running()}
    asked = {}
    for rank in list(map(int, numbers)) or list(running):
        try:
            asked[rank] = ask(running[rank]) if rank in running else "has ended"
        except OSError:
            asked[rank] = "has ended"
    until = time.monotonic() + ANSWER_WITHIN
    for rank, answer in asked.items():
        shown = answer or read(rank, running[rank].pid, until).rstrip()
        line = f"rank {rank} {shown}"
        if is_json:
            line = json.dumps({"rank": rank, "shown": shown, "place": find_place(shown)})
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

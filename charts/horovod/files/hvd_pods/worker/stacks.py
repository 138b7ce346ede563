"""Shows what the ranks of this worker do: `stacks.py [--json] [RANK...]`, by default all ranks.

With --json, print an object for each rank on a line: `rank`, `shown`, the text to show, and
`place`, the position in the rank's script.

A rank writes its own Python stack when it receives SIGNAL: a debugger would need rights that a
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
from hvd_pods.pod import processes
from hvd_pods.rank import rank_registry
from hvd_pods.rank.rank_registry import STACK_SIGNAL
from hvd_pods.shared import paths, untrusted

STATES = {
    "T": "is stopped by a signal: something has sent it SIGSTOP",
    "t": "is stopped by a debugger",
    "D": "waits for a disk or a file server, and cannot be interrupted",
}
# The timeout in seconds for all ranks to write, and the interval between two reads of a file.
STACKS_WRITE_TIMEOUT_SECONDS = 8.0
FILE_READ_INTERVAL_SECONDS = 0.1
# The outer frames of a fork belong to the chart.
OWN_FRAME = re.compile(r'^  File ".*/hvd_pods/warm/\w+\.py", line .*\n?', re.M)
# A frame in the form of faulthandler. Above this number, the outer frames are left out.
STACK_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d{1,9}) in (.+)', re.M)
MAX_FRAMES = 400
# Folders of the user's code, below a digest, and folders of libraries and the chart.
SCRIPTS = re.compile(rf"{paths.CODE}/[^/.][^/]*/")
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/horovod/", "<frozen ")
MAX_PLACE_CHARACTERS = 200


def ask(script: rank_registry.RankScript) -> str | None:
    """Request the stack of a rank. Return the text to show, or None if the rank writes the stack.

    Raises OSError.
    """
    state = STATES.get(processes.read_stat(script.pid).state, "")
    if state:
        return state
    # Without a handler, the signal would end the process.
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
    """Return the stack that a rank writes, when the file stops growing."""
    # On a busy machine, the rank may pause between two lines.
    before = b""
    now = b""
    is_late = False
    while not is_late:
        time.sleep(FILE_READ_INTERVAL_SECONDS)
        # This order matters: read all content that was written before the deadline.
        is_late = time.monotonic() > until
        # The process has received the signal, and its handler, which blocks the signal, has
        # returned.
        has_ended = not rank_registry.has_signal(pid, STACK_SIGNAL, "ShdPnd", "SigBlk")
        with suppress(OSError):
            now = untrusted.read_file(Path(rank_registry.stack_file(rank)))
        # A script may block the signal forever.
        if now and (is_late or (now == before and has_ended)):
            return "shows its Python stack:\n" + OWN_FRAME.sub("", now.decode(errors="replace"))
        before = now
    return "shows no Python stack: its log has it, or it does not react to signals"


def find_place(stack: str) -> str:
    """Return the position in a script as FILE:LINE in FUNCTION; empty for a text without frames.

    That is the innermost frame of the user's own code, else the innermost frame outside of
    libraries.
    """
    frames = [frame.groups() for frame in islice(STACK_FRAME.finditer(stack), MAX_FRAMES)]
    script_frames = [frame for frame in frames if SCRIPTS.match(frame[0])]
    others = [frame for frame in frames if not any(part in frame[0] for part in LIBRARIES)]
    for file, number, function in (script_frames or others or frames)[:1]:
        return untrusted.one_line(
            f"{SCRIPTS.sub('', file)}:{number} in {function}", MAX_PLACE_CHARACTERS
        )
    return ""


def main() -> int:
    """Print the state of each rank: a line, and its stack."""
    is_json = sys.argv[1:2] == ["--json"]
    numbers = sys.argv[2 if is_json else 1 :]
    running = {script.rank: script for script in rank_registry.running()}
    asked = {}
    for rank in list(map(int, numbers)) or list(running):
        try:
            asked[rank] = ask(running[rank]) if rank in running else "has ended"
        except OSError:
            asked[rank] = "has ended"
    until = time.monotonic() + STACKS_WRITE_TIMEOUT_SECONDS
    for rank, answer in asked.items():
        shown = answer or read(rank, running[rank].pid, until).rstrip()
        line = f"rank {rank} {shown}"
        if is_json:
            line = json.dumps({"rank": rank, "shown": shown, "place": find_place(shown)})
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

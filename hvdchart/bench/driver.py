"""Run a command once for each trial of `hvdchart bench`, one after the other.

The master gets this file's text, and the image's own Python, 3.8 or newer, runs it: standard
library only. Arguments: a JSON object with `command` and `trials` (for each trial, how many workers
it runs on, counted from the first); the host file; and the launcher's command line for all workers.
The command is appended to that line.

For each trial, it prints the output as it comes, with the trial's number before each line. Then it
prints the word `MEASURED` and a JSON object in one line: `trial`, `ranks`, `speed` in samples/s
(null when there is none) and `error` (the reason, then). No line of this text may begin with that
word, because the master prints the text, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def parse_speed(output: str) -> float | None:
    """Return the samples/s in the last line with RESULT {...}, as the examples print it.

    Return None when there is no such line, or when the line has no such number.
    """
    for line in reversed(output.splitlines()):
        start = line.find("RESULT {")
        if start >= 0:
            try:
                return float(json.loads(line[start + len("RESULT ") :])["samplesPerSecond"])
            except (ValueError, KeyError, TypeError):
                return None
    return None


def on_first_hosts(launcher: list[str], hostfile: str, hosts: int) -> tuple[list[str], int, str]:
    """Return the launcher's line for the first hosts only, its ranks, and its host file's text.

    The line is that of hvd_pods/master/launch.py. It has the number of ranks twice: as mpirun's -np
    and as its last word. Each rank compares this number with the number of ranks that were started.
    """
    lines = Path(hostfile).read_text().splitlines()[:hosts]
    ranks = 0
    for line in lines:
        # A line ends with the host's number of ranks, whichever launcher reads it.
        slots = re.search(r"\d+$", line)
        if slots:
            ranks += int(slots[0])
    changed = list(launcher)
    if "-np" in changed:
        changed[changed.index("-np") + 1] = str(ranks)
    changed[-1] = str(ranks)
    return changed, ranks, "".join(f"{line}\n" for line in lines)


def run(line: list[str], prefix: str) -> tuple[int, str]:
    """Run a command line to its end; its exit code and output, which is also printed."""
    output = []
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as process:
        for text in process.stdout or ():
            output.append(text)
            print(prefix + text.rstrip("\n"), flush=True)
    return process.returncode, "".join(output)


def main(text: str, hostfile: str, launcher: list[str]) -> int:
    """Run all trials; 1 when none printed a speed."""
    job = json.loads(text)
    succeeded = False
    for number, workers in enumerate(job["trials"]):
        line, ranks, hosts = on_first_hosts(launcher, hostfile, workers)
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as file:
            file.write(hosts)
            file.flush()
            line = [file.name if word == hostfile else word for word in line]
            code, output = run([*line, *job["command"]], f"trial {number}: ")
        speed = parse_speed(output) if code == 0 else None
        error = ""
        if code:
            error = f"exit code {code}"
        elif speed is None:
            error = "its output has no RESULT with a speed"
        measured = {"trial": number, "ranks": ranks, "speed": speed, "error": error}
        print("MEASURED " + json.dumps(measured), flush=True)
        succeeded = succeeded or speed is not None
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

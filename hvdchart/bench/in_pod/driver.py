"""Runs the benchmark on the first workers of the run: on each of some numbers of them, in turns.

Its text is sent to the pods and run by the image's own Python, 3.8 or newer: standard library only.
Arguments: a JSON object with `command`, `sizes` (numbers of workers) and `turns`; the host file;
and the launcher's command line for all workers, to which the command is appended. Prints for each
rank a line with MACHINE and a JSON object: what it runs on. Then for each measurement a line with
BENCH and a JSON object: `turn`, `workers`, `ranks`, `result` (null when there is none) and `error`
(then, the end of the output), and ends after the first error.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# What each rank prints of its machine.
PROBE = r"""
import json, os, platform, re, shutil, socket, subprocess
try:
    text = open("/proc/cpuinfo").read()
except OSError:
    text = ""
names = re.findall(r"(?m)^model name\s*: (.*)$", text) or [platform.machine()]
gpus = []
if shutil.which("nvidia-smi"):
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(words, stdout=subprocess.PIPE, universal_newlines=True)
    gpus = done.stdout.split("\n")[:-1] if done.returncode == 0 else []
print("MACHINE " + json.dumps({
    "host": socket.gethostname(), "processor": names[0], "cpus": os.cpu_count(),
    "cpusOfRank": len(os.sched_getaffinity(0)), "gpus": gpus, "kernel": platform.release(),
}), flush=True)
"""


def read_result(output: str) -> dict[str, Any] | None:
    """The JSON object in the last line with RESULT {...}, if it has a speed; else None."""
    for line in reversed(output.splitlines()):
        start = line.find("RESULT {")
        if start >= 0:
            try:
                result = json.loads(line[start + len("RESULT ") :])
                float(result["imagesPerSecond"])
            except (ValueError, KeyError, TypeError):
                return None
            return dict(result)
    return None


def on_first_hosts(launcher: list[str], hostfile: str, hosts: int) -> tuple[list[str], int, str]:
    """The launcher's line for the first hosts only, its ranks, and the text of its host file.

    The line is that of hvd_pods/master/launch.py: -np and its last word are the ranks, which
    each rank compares with how many were started.
    """
    lines = Path(hostfile).read_text().splitlines()[:hosts]
    ranks = sum(int(match[0]) for match in (re.search(r"\d+$", line) for line in lines) if match)
    changed = list(launcher)
    changed[changed.index("-np") + 1] = changed[-1] = str(ranks)
    return changed, ranks, "".join(f"{line}\n" for line in lines)


def run(line: list[str]) -> tuple[int, str]:
    """Run a command line to its end; its exit code and output."""
    done = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def main(text: str, hostfile: str, launcher: list[str]) -> int:
    """Measure all sizes in all turns; 1 after an error."""
    job = json.loads(text)
    code, output = run([*launcher, "python3", "-c", PROBE])
    print("".join(f"{line}\n" for line in re.findall(r"MACHINE \{.*\}", output)), end="")
    if code:
        print(output, end="", flush=True)
        return 1
    for turn in range(job["turns"]):
        first = turn % len(job["sizes"])
        for workers in (*job["sizes"][first:], *job["sizes"][:first]):
            line, ranks, hosts = on_first_hosts(launcher, hostfile, workers)
            with tempfile.NamedTemporaryFile("w", suffix=".hosts") as file:
                file.write(hosts)
                file.flush()
                line = [file.name if word == hostfile else word for word in line]
                code, output = run([*line, *job["command"]])
            result = read_result(output) if code == 0 else None
            error = "" if result else f"exit code {code}: {output[-800:]}"
            measurement = {"turn": turn, "workers": workers, "ranks": ranks}
            print(
                "BENCH " + json.dumps({**measurement, "result": result, "error": error}), flush=True
            )
            if result is None:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

"""Runs the benchmark once for each thread setting, one after the other, on the master.

Its text is sent to the pods and run by the image's own Python, 3.8 or newer: standard library only.
Arguments: a JSON object with `command` and `runs` (a list of environments), then the launcher's
command line, to which the command is appended. Prints for each run a line with TUNE and a JSON
object: `run`, `speed` in images/s (null when there is none) and `error` (then, the end of the
output).
"""

from __future__ import annotations

import json
import subprocess
import sys


def parse_speed(output: str) -> float | None:
    """The images/s in the last line with RESULT {...}, as the examples print it, or None."""
    for line in reversed(output.splitlines()):
        start = line.find("RESULT {")
        if start >= 0:
            try:
                return float(json.loads(line[start + len("RESULT ") :])["imagesPerSecond"])
            except (ValueError, KeyError, TypeError):
                return None
    return None


def measure(line: list[str]) -> tuple[float | None, str]:
    """Run a command line once; return its speed, or None and the end of its output."""
    done = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    speed = parse_speed(done.stdout) if done.returncode == 0 else None
    return speed, "" if speed is not None else f"exit code {done.returncode}: {done.stdout[-800:]}"


def main(text: str, launcher: list[str]) -> int:
    """Run all settings; 1 when no run printed a speed."""
    job = json.loads(text)
    succeeded = False
    for number, env in enumerate(job["runs"]):
        # With `env` on the workers: their own settings would override what mpirun passes on.
        settings = ["env", *(f"{name}={value}" for name, value in env.items())]
        speed, error = measure([*launcher, *settings, *job["command"]])
        succeeded = succeeded or speed is not None
        print("TUNE " + json.dumps({"run": number, "speed": speed, "error": error}), flush=True)
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

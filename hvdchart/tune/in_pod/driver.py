"""Runs one benchmark after another on the master, with other thread settings each time.

Sent to the pods as text and run by the image's own Python 3.8 or newer: standard library only.
Arguments: a JSON object of `command` and `runs` (a list of environments), and the launcher's line
that the command comes after. For each run it prints one line, TUNE and a JSON object: `run`,
`speed` in images/s (null without one) and `error` (the end of the output when there is no speed).
"""

from __future__ import annotations

import json
import subprocess
import sys


def speed_in(output: str) -> float | None:
    """The images/s of the last line with RESULT {...} in it, as the examples print it."""
    for line in reversed(output.splitlines()):
        start = line.find("RESULT {")
        if start >= 0:
            try:
                return float(json.loads(line[start + len("RESULT ") :])["imagesPerSecond"])
            except (ValueError, KeyError, TypeError):
                return None
    return None


def measured(line: list[str]) -> tuple[float | None, str]:
    """Run a launcher's line once; its speed, or the end of its output."""
    done = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    speed = speed_in(done.stdout) if done.returncode == 0 else None
    return speed, "" if speed is not None else f"exit code {done.returncode}: {done.stdout[-800:]}"


def main(text: str, start: list[str]) -> int:
    """Run all; 1 when no run gave a speed."""
    job = json.loads(text)
    found = False
    for number, env in enumerate(job["runs"]):
        # By `env` on the ranks' side: what mpirun passes on gives way to the workers' own settings.
        settings = ["env", *(f"{name}={value}" for name, value in env.items())]
        speed, error = measured([*start, *settings, *job["command"]])
        found = found or speed is not None
        print("TUNE " + json.dumps({"run": number, "speed": speed, "error": error}), flush=True)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

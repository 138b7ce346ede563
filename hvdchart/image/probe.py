"""Looks at the image that it runs in, and prints what it finds as one line of JSON after MARK.

Standard library only, any Python from 3.7 on: `image check` sends this file's text to the image's
own interpreter. It judges nothing; hvdchart.image.check does.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

MARK = "HVD-IMAGE-PROBE "
# sshd and its like are often in directories that an ordinary user's PATH leaves out.
SEARCHED = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin"
PROGRAMS = ("python3", "ssh", "sshd", "ssh-keygen", "mpirun", "horovodrun")
FRAMEWORKS = ("tensorflow", "torch", "mxnet")
FEATURES = ("mpi", "gloo", "nccl")


ASKED = """
import importlib, json, sys
name, features = sys.argv[1], sys.argv[2:]
module = importlib.import_module("horovod." + name)
built = [feature for feature in features if getattr(module, feature + "_built", bool)()]
version = getattr(importlib.import_module(name), "__version__", "unknown")
print("\\n" + json.dumps({"version": version, "built": built}))
"""


def said(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)


def framework(name: str) -> "dict[str, object]":
    """What Horovod's module for a framework says of itself, or why it cannot be imported.

    In a process of its own: what does not fit may end the interpreter.
    """
    done = said(sys.executable, "-c", ASKED, name, *FEATURES)
    if done.returncode == 0:
        answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return answer
    lines = done.stderr.strip().splitlines()
    return {"error": lines[-1] if lines else f"ended with status {done.returncode}"}


def mpi() -> str:
    """The first line of what mpirun says of itself."""
    done = said("mpirun", "--version")
    lines: list[str] = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else f"ended with status {done.returncode}"


def main() -> None:
    found = {
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "user": os.getuid(),
        "programs": {name: shutil.which(name, path=SEARCHED) for name in PROGRAMS},
        "mpi": mpi() if shutil.which("mpirun") else None,
        "horovod": importlib.util.find_spec("horovod") is not None,
        "frameworks": {
            name: framework(name)
            for name in FRAMEWORKS
            if importlib.util.find_spec(name) is not None
            and importlib.util.find_spec("horovod") is not None
        },
    }
    print(MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

"""Run Docker, Podman and Buildah: find one that works here, and run a command in a container.

images/builder/build_engines.py builds this repository's images with them: it needs their build
options, which hvdchart has no use for, and takes the choice of the engine from here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Sequence

from hvd_pods.shared.pipes import pipe_of
from hvdchart.errors import ImageError
from hvdchart.interrupts import terminated_on_exception

# In order of preference.
ENGINES = ("docker", "podman", "buildah")
# Seconds for a command without the network: a large image may have to be read from disk completely.
_COMMAND_TIMEOUT_SECONDS = 300
# The number of lines of a failed command in an error.
_ERROR_TAIL_LINES = 10
_RESTRICTIONS = (
    "--rm",
    "--read-only",
    "--network=none",
    "--tmpfs=/tmp",
    "--entrypoint=",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--env=HOME=/tmp",
)
Result = subprocess.CompletedProcess[str]
Report = Callable[[str], None]


def is_working(engine: str) -> bool:
    """Return whether the engine is installed and `info` succeeds, which needs Docker's daemon."""
    return shutil.which(engine) is not None and _run([engine, "info"]).returncode == 0


def working_engines() -> list[str]:
    """Return the engines that work here, in order of preference."""
    return [engine for engine in ENGINES if is_working(engine)]


def choose_engine(
    name: str | None, remedy: str = "run the script without an image of its own: deploy --code"
) -> str:
    """Return the engine of this name; without a name, the first that works.

    Raises ImageError for an unknown name, for an engine that does not work, and, with `remedy`,
    when none works.
    """
    if name is not None and name not in ENGINES:
        raise ImageError(f"{name!r} is not an engine: use one of {', '.join(ENGINES)}")
    if name is not None and not is_working(name):
        raise ImageError(f"{name} does not work here: install or start it")
    engine = name or next(filter(is_working, ENGINES), None)
    if engine is None:
        raise ImageError(f"none of {', '.join(ENGINES)} works here: start one, or {remedy}")
    return engine


def runtime_options() -> list[str]:
    """Return options that let Podman and Buildah run containers as root: runc if it is installed.

    Their default, crun, refuses a machine that mounts control groups of both versions. Podman takes
    the options before its subcommand, Buildah after it.
    """
    return ["--runtime=runc"] if os.geteuid() == 0 and shutil.which("runc") else []


def run_in(
    image: str,
    command: Sequence[str],
    user: int,
    engine: str | None = None,
    report: Report = lambda line: None,
) -> Result:
    """Run a command in an image as a pod would: group 0, no capabilities, no network.

    `user` is the user ID. `engine` is one of ENGINES, by default the first that works. The image is
    pulled if the engine does not have it; `report` gets the lines of the pull. The exit code of the
    command may be any. Raises ImageError when the engine cannot run the image, or the command takes
    more than five minutes.
    """
    name = choose_engine(engine, "check the image in the cluster with --in-cluster")
    if _run([name, "inspect", "--type=image", image]).returncode != 0:
        report(f"pulling {image} with {name}")
        code, lines = stream_command([name, "pull", image], report)
        if code != 0:
            reason = lines[-1] if lines else "it printed no reason"
            raise ImageError(f"{name} does not have {image} and cannot pull it: {reason}")
    if name == "buildah":
        return _run_buildah(name, image, command, f"{user}:0")
    runtime = runtime_options() if name == "podman" else []
    return _run([name, *runtime, "run", *_RESTRICTIONS, f"--user={user}:0", image, *command])


def stream_command(command: Sequence[str], report: Report) -> tuple[int, list[str]]:
    """Run a program; return its exit code and its last lines, without empty ones.

    Each line is reported as it comes. After Ctrl-C, the program is ended.
    """
    last: deque[str] = deque(maxlen=_ERROR_TAIL_LINES)
    with (
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
        ) as process,
        terminated_on_exception(process),
    ):
        for line in pipe_of(process.stdout):
            last.append(line.strip())
            report(line.rstrip("\n"))
    return process.returncode, [line for line in last if line]


def _run_buildah(engine: str, image: str, command: Sequence[str], user: str) -> Result:
    """Run a command with Buildah, which needs a working container made from the image."""
    created = _run([engine, "from", "--pull-never", image])
    if created.returncode != 0:
        raise ImageError(f"{engine} cannot create a container of {image}: {created.stderr.strip()}")
    container = created.stdout.strip()
    try:
        options = ["--user", user, "--env", "HOME=/tmp", "--cap-drop", "all"]
        runtime = runtime_options()
        if runtime:
            options += ["--isolation", "oci", *runtime]
        return _run([engine, "run", *options, container, "--", *command])
    finally:
        _run([engine, "rm", container])


def _run(command: Sequence[str]) -> Result:
    """Run a program to its end; raise ImageError after _COMMAND_TIMEOUT_SECONDS."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ImageError(
            f"`{' '.join(command[:3])} ...` took over {_COMMAND_TIMEOUT_SECONDS} s"
        ) from error

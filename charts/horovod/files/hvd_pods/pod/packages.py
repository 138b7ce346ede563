"""The packages in requirements.txt beside the user's code: pip installs them in this pod, once.

pip installs them into a virtual environment on the volume of the code. It finds the image's
packages, and leaves them unchanged. Ranks keep the image's Python: PYTHONPATH names the packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Mapping, Sequence

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.shared import paths, pip_output
from hvd_pods.shared.errors import ConfigurationError, RunError

PACKAGES_FOLDER = Path(paths.PACKAGES)
# A link to the environment that ranks use. Its path never changes, so that all processes know it.
CURRENT = "current"
COMPLETE = "complete"
# Lines that refer to other files of the code, whose content then counts as well.
REFERS = re.compile(
    r"^[ \t]*(-[rcef]|--(requirement|constraint|editable|find-links)|[-\w.]*/)", re.M
)
# The packages that Horovod was compiled for. Horovod would not work with other versions.
FIXED = ("horovod", "torch")
# One package under the names of its builds.
TENSORFLOW = ("tensorflow", "tensorflow-cpu", "intel-tensorflow")
# Prints where the image's Python finds packages, and the versions of packages that must stay.
LOOK = """
import json, sys
from importlib.metadata import distributions
versions = {str(d.metadata["Name"]).lower().replace("_", "-"): d.version for d in distributions()}
print(json.dumps({"path": [p for p in sys.path if p],
                  "versions": {n: versions[n] for n in sys.argv[1:] if n in versions}}))
"""
PIP = (
    "-I",
    "-m",
    "pip",
    "install",
    "--no-input",
    "--disable-pip-version-check",
    "--no-warn-script-location",
    "--progress-bar",
    "off",
    "--requirement",
    pip_output.REQUIREMENTS,
)
# By default, pip retries for minutes if an index does not respond.
PIP_LIMITS = {"PIP_RETRIES": "2", "PIP_DEFAULT_TIMEOUT": "15"}


def add_to(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds the packages, before those of PYTHONPATH.

    The libraries of an MPI among the packages are found only if the image has no MPI: otherwise,
    the image's mpirun would start ranks with libraries that do not belong to it.
    """
    current = PACKAGES_FOLDER / CURRENT
    added = {
        "PYTHONPATH": _join(str(current / "site"), environment.get("PYTHONPATH")),
        # After the image's programs: the environment has a python3 of its own.
        "PATH": _join(environment.get("PATH"), str(current / "bin")),
    }
    if shutil.which("mpirun", path=environment.get("PATH", os.defpath)) is None:
        libraries = _join(environment.get("LD_LIBRARY_PATH"), str(current / "lib"))
        added["LD_LIBRARY_PATH"] = libraries
    return {**environment, **added}


def _join(*paths: str | None) -> str:
    """Return paths as one text with colons, without None and empty paths."""
    return ":".join(path for path in paths if path)


def drop_installed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python does not find the packages of an earlier run."""
    packages_prefix = f"{PACKAGES_FOLDER / CURRENT}/"
    words = environment.get("PYTHONPATH", "").split(":")
    return {
        **environment,
        "PYTHONPATH": ":".join(w for w in words if not w.startswith(packages_prefix)),
    }


def identify(code: Path) -> str:
    """Return a name for the content of requirements.txt: 10 hexadecimal digits.

    If it refers to other files, each version of the code has a name of its own. Raises OSError
    without a requirements.txt.
    """
    text = (code / pip_output.REQUIREMENTS).read_text(errors="replace")
    refers = ".whl" in text or "file:" in text or REFERS.search(text)
    return hashlib.sha256(f"{text}{code.name if refers else ''}".encode()).hexdigest()[:10]


def install(code: Path, timeout_seconds: float) -> str:
    """Install the packages that this code requires where ranks find them; return a summary.

    Raises RunError when the package index does not respond, or pip has not ended within
    `timeout_seconds`, and ConfigurationError when a retry cannot help.
    """
    try:
        PACKAGES_FOLDER.mkdir(exist_ok=True)
        with (PACKAGES_FOLDER / "lock").open("w") as lock:
            # The pip of an earlier master may still be running.
            fcntl.flock(lock, fcntl.LOCK_EX)
            environment = PACKAGES_FOLDER / identify(code)
            done = "nothing: the packages are there from an earlier run"
            if not (environment / COMPLETE).exists():
                # Remove the environments of earlier runs or of an interrupted pip.
                for entry in PACKAGES_FOLDER.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                done = _fill(environment, code, timeout_seconds)
                (environment / COMPLETE).touch()
            beside = PACKAGES_FOLDER / f"{CURRENT}.new"
            beside.unlink(missing_ok=True)
            beside.symlink_to(environment.name)
            beside.replace(PACKAGES_FOLDER / CURRENT)
    except OSError as problem:
        raise ConfigurationError(f"{problem}: {pip_output.INSTEAD}") from problem
    return done


def _fill(environment: Path, code: Path, timeout_seconds: float) -> str:
    """Install into a new virtual environment; return what was installed, and pip's warnings.

    Raises RunError as `install` does, and OSError.
    """
    variables = {**PIP_LIMITS, **drop_installed(os.environ)}
    look = [sys.executable, "-c", LOOK, *FIXED, *TENSORFLOW]
    # It needs the image's PYTHONPATH, which -I ignores. Python also finds modules in its working
    # directory. Therefore it runs in a directory without modules of an earlier run.
    image = json.loads(_run(look, variables, Path("/"), "look at the image's packages"))
    make = [sys.executable, "-I", "-m", "venv", "--without-pip", str(environment)]
    _run(make, variables, environment.parent, "make a virtual environment")
    (site,) = environment.glob("lib/python3*/site-packages")
    (environment / "site").symlink_to(site.relative_to(environment))
    (site / "image.pth").write_text("".join(f"{path}\n" for path in image["path"]))
    constraints = environment / "constraints.txt"
    constraints.write_text(_constrain(image["versions"], site))
    pip = [str(environment / "bin" / "python3"), *PIP, "--constraint", str(constraints)]
    pip_log = environment / "pip.log"
    code_of_pip = _run_pip(pip, variables, code, pip_log, timeout_seconds)
    output = pip_log.read_text(errors="replace")
    values = pip_output.find_secrets(code / pip_output.REQUIREMENTS, variables)
    if code_of_pip is None:
        late = f"pip has not ended within {timeout_seconds:g} s"
        raise RunError(
            f"{late} (package index {pip_output.find_index(output, values)}): {pip_output.INSTEAD}"
        )
    if code_of_pip:
        raise pip_output.explain(output, values)
    return pip_output.redact(pip_output.summarize(output), values)


def _run_pip(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    pip_log: Path,
    timeout_seconds: float,
) -> int | None:
    """Run pip in a folder, with its output in `pip_log`; return its exit code, or None at timeout.

    The output is not a pipe: a program that pip started would keep a pipe open after pip's end.
    """
    with pip_log.open("wb") as log, suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            env=dict(variables),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=timeout_seconds,
            check=False,
        )
        return done.returncode
    return None


def _run(command: Sequence[str], variables: Mapping[str, str], folder: Path, purpose: str) -> str:
    """Return a program's output. Raises ConfigurationError with its last line when it fails."""
    done = subprocess.run(
        command, env=dict(variables), cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = (done.stderr + done.stdout).split("\n")
        last = next((line for line in reversed(words) if line.strip()), "no output")
        raise ConfigurationError(f"cannot {purpose}: {last.strip()}: {pip_output.INSTEAD}")
    return done.stdout


def _constrain(versions: Mapping[str, str], site: Path) -> str:
    """Return constraints that keep the packages that Horovod was compiled for, by all names.

    `versions` has the versions of these packages in the image. In `site`, TensorFlow gets an entry
    for each name that the image's build does not have.
    """
    pinned = dict(versions)
    tensorflow = next((versions[name] for name in TENSORFLOW if name in versions), None)
    if tensorflow:
        for name in TENSORFLOW:
            if name not in versions:
                # Prevents pip from installing it a second time under another name.
                _pretend(name, tensorflow, site)
                pinned[name] = tensorflow
    return "".join(f"{name}=={version}\n" for name, version in sorted(pinned.items()))


def _pretend(name: str, version: str, site: Path) -> None:
    """Create an empty package of this version in a folder, for pip to find."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text)
    (info / "RECORD").touch()


def main() -> int:
    """Install the packages that the code requires on a worker; print a summary, or the problem.

    The arguments are the name of the code's folder and the seconds that pip may take.
    """
    try:
        print(install(Path(paths.CODE, sys.argv[1]), float(sys.argv[2])))
    except RunError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The packages in requirements.txt beside the user's code: pip installs them in this pod, once.

They go into a virtual environment on the volume of the code, in which pip finds what the image has
and leaves it as it is. Ranks keep the image's Python: PYTHONPATH names the packages.
"""

from __future__ import annotations

import base64
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
from typing import Iterable, Mapping, Sequence
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common import fast_start
from hvd_pods.common.errors import ConfigurationError, RunError
from hvd_pods.common.hostile import read_file

REQUIREMENTS = "requirements.txt"
FOLDER = Path(fast_start.PACKAGES)
# A link to the environment that ranks use. Its path stays, so that all processes know it.
CURRENT = "current"
COMPLETE = "complete"
# Lines that name other files of the code, whose content then counts as well.
REFERS = re.compile(
    r"^[ \t]*(-[rcef]|--(requirement|constraint|editable|find-links)|[-\w.]*/)", re.M
)
# What Horovod was compiled for: another version would not work with it.
FIXED = ("horovod", "mxnet", "torch")
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
    REQUIREMENTS,
)
DEFAULT_INDEX = "https://pypi.org/simple"
# Where nothing else is set, pip would try for minutes to reach an index that does not answer.
PIP_LIMITS = {"PIP_RETRIES": "2", "PIP_DEFAULT_TIMEOUT": "15"}
UNREACHABLE = re.compile(
    r"connection broken by '(\w+)|\b(ProxyError|ConnectTimeoutError|NewConnectionError)\b"
)
# What must not be shown of requirements.txt and the files that it names: the values of variables,
# which pip expands, and what addresses have before their host.
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
NAMED_FILE = re.compile(r"^[ \t]*(?:-[rc]|--requirement|--constraint)[ \t=]*([^\s#]+)", re.M)
# What an address has before its host, up to the last @ as a password may have any character, and
# the values of its query, of which some are signatures.
CREDENTIALS = re.compile(r"(?<=://)([^/\s:@]*:)?[^\s'\"<>]*@")
QUERY = re.compile(r"([?&;][^\s=&;#'\"<>]{1,100}=)[^\s&;#'\"<>]+")
ESCAPE = re.compile(r"%[0-9A-F]{2}")
HIDDEN = "****"
SHORTEST_SECRET = 6
REASON = re.compile(r"\[Errno -?\d+\] [^'\")]+|timed out|CERTIFICATE_VERIFY_FAILED")
INSTEAD = (
    "put the packages into an image (hvdchart build), name an index that answers in PIP_INDEX_URL "
    "of worker.env, or set code.requirements to Ignore"
)


def add_to(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds the packages, before those of PYTHONPATH.

    The libraries of an MPI among them are found only where the image has no MPI: its own mpirun
    would start ranks with other libraries than its own.
    """
    current = FOLDER / CURRENT
    added = {
        "PYTHONPATH": _join(str(current / "site"), environment.get("PYTHONPATH")),
        # Behind the image's programs: the environment has a python3 of its own.
        "PATH": _join(environment.get("PATH"), str(current / "bin")),
    }
    if shutil.which("mpirun", path=environment.get("PATH", os.defpath)) is None:
        libraries = _join(environment.get("LD_LIBRARY_PATH"), str(current / "lib"))
        added["LD_LIBRARY_PATH"] = libraries
    return {**environment, **added}


def _join(*paths: str | None) -> str:
    """Paths as one text with colons; None and empty ones are left out."""
    return ":".join(path for path in paths if path)


def without(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python does not find the packages of an earlier run."""
    own = f"{FOLDER / CURRENT}/"
    words = environment.get("PYTHONPATH", "").split(":")
    return {**environment, "PYTHONPATH": ":".join(w for w in words if not w.startswith(own))}


def identify(code: Path) -> str:
    """A name for what requirements.txt asks for: 10 hexadecimal digits.

    Where it names other files, each version of the code has a name of its own. Raises OSError
    without a requirements.txt.
    """
    text = (code / REQUIREMENTS).read_text(errors="replace")
    refers = ".whl" in text or "file:" in text or REFERS.search(text)
    return hashlib.sha256(f"{text}{code.name if refers else ''}".encode()).hexdigest()[:10]


def install(code: Path, within: float) -> str:
    """Install the packages that this code asks for where ranks find them; return what was done.

    Raises RunError when the package index does not answer, or pip has not ended within these
    seconds, and ConfigurationError when another attempt cannot help.
    """
    try:
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / "lock").open("w") as lock:
            # The pip of an earlier master may still run.
            fcntl.flock(lock, fcntl.LOCK_EX)
            environment = FOLDER / identify(code)
            done = "nothing: the packages are there from an earlier run"
            if not (environment / COMPLETE).exists():
                # What earlier runs or an interrupted pip have left.
                for entry in FOLDER.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                done = fill(environment, code, within)
                (environment / COMPLETE).touch()
            beside = FOLDER / f"{CURRENT}.new"
            beside.unlink(missing_ok=True)
            beside.symlink_to(environment.name)
            beside.replace(FOLDER / CURRENT)
    except OSError as problem:
        raise ConfigurationError(f"{problem}: {INSTEAD}") from problem
    return done


def fill(environment: Path, code: Path, within: float) -> str:
    """Install into a new virtual environment; what was installed, and what pip warns of.

    Raises RunError as `install` does, and OSError.
    """
    variables = {**PIP_LIMITS, **without(os.environ)}
    look = [sys.executable, "-c", LOOK, *FIXED, *TENSORFLOW]
    # It needs the image's PYTHONPATH, which -I ignores. Python also finds modules in its working
    # directory, which must be none in which an earlier run may have left some.
    image = json.loads(run(look, variables, Path("/"), "look at the image's packages"))
    make = [sys.executable, "-I", "-m", "venv", "--without-pip", str(environment)]
    run(make, variables, environment.parent, "make a virtual environment")
    (site,) = environment.glob("lib/python3*/site-packages")
    (environment / "site").symlink_to(site.relative_to(environment))
    (site / "image.pth").write_text("".join(f"{path}\n" for path in image["path"]))
    constraints = environment / "constraints.txt"
    constraints.write_text(keep(image["versions"], site))
    pip = [str(environment / "bin" / "python3"), *PIP, "--constraint", str(constraints)]
    pip_log = environment / "pip.log"
    code_of_pip = _run_pip(pip, variables, code, pip_log, within)
    output = pip_log.read_text(errors="replace")
    values = secrets(code / REQUIREMENTS, variables)
    if code_of_pip is None:
        late = f"pip has not ended within {within:g} s"
        raise RunError(f"{late} (package index {find_index(output, values)}): {INSTEAD}")
    if code_of_pip:
        raise explain(output, values)
    return redact(summarize(output), values)


def _run_pip(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, pip_log: Path, within: float
) -> int | None:
    """Run pip in a folder, with its output in `pip_log`; its exit code, None if it took too long.

    The output is not a pipe, which a program that pip has started would keep open after pip's end.
    """
    with pip_log.open("wb") as log, suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            env=dict(variables),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=within,
            check=False,
        )
        return done.returncode
    return None


def secrets(file: Path, variables: Mapping[str, str]) -> set[str]:
    """The values of the variables that a requirements file has, and the files that it names.

    A file that cannot be read has none, and a variable that is not set has an empty value.
    """
    values = set()
    files = [file]
    for path in files:
        try:
            text = read_file(path).decode(errors="replace")
        except OSError:
            continue
        values |= {variables.get(name, "") for name in VARIABLE.findall(text)}
        named = {Path(os.path.normpath(path.parent / name)) for name in NAMED_FILE.findall(text)}
        files += named.difference(files)
    return values


def redact(text: str, values: Iterable[str]) -> str:
    """A text without these values, what addresses have before their host, and values of queries.

    pip replaces passwords in addresses that it understands, and in nothing else. Values of less
    than SHORTEST_SECRET characters stay: a text has them by chance.
    """
    spelled = {word for value in values if len(value) >= SHORTEST_SECRET for word in _spell(value)}
    for word in sorted(spelled, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return QUERY.sub(rf"\1{HIDDEN}", CREDENTIALS.sub(rf"\1{HIDDEN}@", text))


def _spell(value: str) -> set[str]:
    """The ways in which a text may spell a secret: itself, escaped, and in base64."""
    words = {value, quote(value), quote(value, safe="")}
    words |= {ESCAPE.sub(lambda found: found[0].lower(), word) for word in words}
    # What comes before it, as a user's name and a colon, decides at which of three bits it begins.
    for before in range(3):
        data = b"\0" * before + value.encode(errors="surrogatepass")
        whole = data[: len(data) // 3 * 3]
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            words.add(encode(whole)[4 if before else 0 :].decode())
    return {word for word in words if len(word) >= SHORTEST_SECRET}


def run(command: Sequence[str], variables: Mapping[str, str], folder: Path, purpose: str) -> str:
    """What a program prints. Raises ConfigurationError when it fails, with its last line."""
    done = subprocess.run(
        command, env=dict(variables), cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = (done.stderr + done.stdout).split("\n")
        last = next((line for line in reversed(words) if line.strip()), "no output")
        raise ConfigurationError(f"cannot {purpose}: {last.strip()}: {INSTEAD}")
    return done.stdout


def keep(versions: Mapping[str, str], site: Path) -> str:
    """Constraints under which what Horovod was compiled for stays, by each name that it has.

    `versions` has the versions of these packages in the image. In `site`, TensorFlow gets an entry
    for each name that the image's build does not have.
    """
    kept = dict(versions)
    tensorflow = next((versions[name] for name in TENSORFLOW if name in versions), None)
    if tensorflow:
        for name in TENSORFLOW:
            if name not in versions:
                # So that pip does not install it a second time, under another name.
                _pretend(name, tensorflow, site)
                kept[name] = tensorflow
    return "".join(f"{name}=={version}\n" for name, version in sorted(kept.items()))


def _pretend(name: str, version: str, site: Path) -> None:
    """Let pip find a package of this version in a folder, which has nothing of it."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text)
    (info / "RECORD").touch()


def summarize(output: str) -> str:
    """What pip has done, in one line, and its warning for each package that may not work.

    pip says that at the end, and succeeds.
    """
    lines = output.splitlines()
    begins = "Successfully installed "
    done = next((line[len(begins) :] for line in lines if line.startswith(begins)), "")
    broken = [line for line in lines if line.endswith("which is incompatible.")]
    return "\n".join([done or "nothing: the image has all packages", *broken])


def find_index(output: str, values: Iterable[str]) -> str:
    """The package index that pip has named, without these values; PyPI where it has named none."""
    begins = "Looking in indexes: "
    named = (line for line in output.splitlines() if line.startswith(begins))
    return redact(next(named, begins + DEFAULT_INDEX)[len(begins) :], values)


def explain(output: str, values: Iterable[str] = ()) -> RunError:
    """Why pip failed, in one line with the index and what to do instead, without these values.

    It is a ConfigurationError, except where the index did not answer: another attempt may help
    then.
    """
    lines = output.splitlines()
    index = find_index(output, values)
    if "No module named pip" in output:
        return ConfigurationError(f"the image's python3 has no pip: {INSTEAD}")
    errors = [line[len("ERROR: ") :].strip() for line in lines if line.startswith("ERROR: ")]
    found = UNREACHABLE.search(output)
    if found:
        reason = REASON.search(output)
        why = redact(reason[0], values) if reason else found[1] or found[2]
        return RunError(f"no answer from the package index {index} ({why}): {INSTEAD}")
    if "The conflict is caused by:" in lines:
        at = lines.index("The conflict is caused by:") + 1
        asked = [line.strip() for line in lines[at:] if line.startswith("    ")]
        what = redact("; ".join(asked), values)
        what += " (Horovod was compiled for what the image has)"
        return ConfigurationError(f"{what}: ask for another version, or use another image")
    what = "no output"
    if errors:
        what = errors[-1]
    elif lines:
        what = lines[-1]
    if "DO NOT MATCH THE HASHES" in output:
        name = next((line.strip() for line in lines if line.startswith("    ")), "")
        what = f"the hashes in {REQUIREMENTS} are not those of the file that the index has: {name}"
    return ConfigurationError(f"{redact(what, values)} (package index {index}): {INSTEAD}")


def main() -> int:
    """On a worker: install what the code asks for; prints what was done, or why not.

    The arguments are the name of the code's folder and the seconds that pip may take.
    """
    try:
        print(install(Path(fast_start.CODE) / sys.argv[1], float(sys.argv[2])))
    except RunError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

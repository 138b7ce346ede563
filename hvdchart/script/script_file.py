"""Check the file of a script, and name its command and its run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from hvdchart.errors import FileError
from hvdchart.script.beside_script import read_text
from hvdchart.spec import SPEC_NAME
from hvdchart.spec.fields import RELEASE_NAME, suggest_nearest
from hvdchart.spec.launchers import skip_env
from hvdchart.spec.values_schema import schema_at, values_schema
from hvdchart.text import join_names

# The name of a shell, such as bash or zsh-5.8.
_SHELL_NAME = re.compile(r"\w*sh[-.0-9]*")
# The maximum number of a folder's scripts in a message.
_MAX_NAMED_SCRIPTS = 3


def script_command(script: Path, code: Path | None, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a script in the pods: the script alone, or in folder `code`.

    Raises FileError for a script that is no file or none of Python, whose name the chart does not
    take, or that is not in the folder.
    """
    _require_python(script)
    is_alone = code is None or not code.is_dir()
    if is_alone and not re.fullmatch(_names_of_files(), script.name):
        raise FileError(
            f"{script}: the name {script.name!r} has other characters than A-Z a-z 0-9 . _ -: "
            "rename the script"
        )
    return ["python3", _path_in_code(script, code), *arguments]


def _require_python(script: Path) -> None:
    """Raise FileError for what is no file, or no script of Python."""
    if script.is_dir():
        raise FileError(f"{script} is a folder: {_instead_of_folder(script)}")
    if not script.is_file():
        near = ""
        if script.parent.is_dir():
            # Leave out the common suffix: it would make short names similar.
            others = sorted(path.stem for path in script.parent.glob("*.py") if path != script)
            near = suggest_nearest(script.stem, others, ".py")
        raise FileError(f"{script}: no such file{near}")
    if script.suffix == ".ipynb":
        raise FileError(
            f"{script} is a notebook, not a script: `jupyter nbconvert --to script {script}` makes "
            "one of it; in a cell, `hvdchart.launch(function, workers=2)` runs a function on ranks"
        )
    if script.suffix in (".sh", ".bash") or _is_of_shell(read_text(script)):
        raise FileError(
            f"{script} is a script of a shell, not of Python: `hvdchart migrate {script}` reads "
            "its launcher's line"
        )
    if script.suffix in (".yaml", ".yml"):
        raise FileError(f"{script} is no script; to run a spec: hvdchart deploy {script}")


def _path_in_code(script: Path, code: Path | None) -> str:
    """Return the path of a script in the folder of its code; its name where it goes alone.

    Raises FileError for a folder that does not exist, or does not have the script.
    """
    if code is None:
        return script.name
    if not code.exists():
        raise FileError(f"--code {code}: no such file or folder")
    if code.resolve() == script.resolve():
        return script.name
    if not script.resolve().is_relative_to(code.resolve()):
        raise FileError(f"--code {code}: does not contain {script}")
    return script.resolve().relative_to(code.resolve()).as_posix()


def script_name(script: Path) -> str:
    """Return the name of a script's run without a given name: `train` for 01_train.py.

    Raises FileError for a script whose file name has no letter of a name.
    """
    words = re.sub("[^a-z0-9]+", "-", script.stem.lower())
    # A name starts with a letter.
    name = words.lstrip("-0123456789")[: RELEASE_NAME.longest].rstrip("-")
    if not name:
        raise FileError(f"{script}: its file name gives the run no name: add --name NAME")
    return name


def _is_of_shell(text: str) -> bool:
    """Return whether the first line of a script names a shell, alone or after `env`."""
    line = text.partition("\n")[0]
    words = skip_env(line[2:].split()) if line.startswith("#!") else []
    return bool(words and _SHELL_NAME.fullmatch(PurePosixPath(words[0]).name))


def _names_of_files() -> str:
    """Return the pattern of the names that the chart accepts for single files of code."""
    files = schema_at(values_schema(), ("code", "files")) or {}
    (pattern,) = files["patternProperties"]
    return str(pattern)


def _instead_of_folder(folder: Path) -> str:
    """Return what to name in the place of a folder: the project in it, or one of its scripts."""
    if (folder / SPEC_NAME).is_file():
        return f"name the script in it, or to run the project: hvdchart deploy {folder}"
    scripts = sorted(str(path) for path in folder.glob("*.py"))
    if not scripts:
        return "it has no script; name one"
    if len(scripts) <= _MAX_NAMED_SCRIPTS:
        return f"name a script in it, such as {join_names(scripts)}"
    return (
        f"name one of its {len(scripts)} scripts, such as {', '.join(scripts[:_MAX_NAMED_SCRIPTS])}"
    )

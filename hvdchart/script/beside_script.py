"""Find the files beside a script that it uses, and warn of those that are not sent along."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from hvd_pods.shared.pip_output import REQUIREMENTS
from hvdchart.errors import FileError
from hvdchart.script.default_images import DefaultImage

# The relative name of a file with a suffix, such as data/train.csv, within the folder.
_FILE_NAME = re.compile(r"(?!.*\.\.)[\w-][\w./-]{0,200}\.\w{1,10}")


def warn_of_files_left(
    script: Path,
    modules: Iterable[str],
    image: DefaultImage | None = None,
    needed: Collection[str] = (),
) -> Iterator[str]:
    """Warn of files in the folder that a script sent alone, which imports `modules`, uses.

    Raises FileError if the script would fail at once: `image` is a public image without any of the
    `needed` modules.
    """
    folder = script.parent
    names = sorted({module.partition(".")[0] for module in modules} - {script.stem})
    files = {name: file for name in names if (file := module_file(folder, name))}
    if image:
        importable = image.has | sys.stdlib_module_names
        # A package in the image takes precedence over a folder without __init__.py.
        sure = [name for name in files if name in needed and is_regular(folder, name)]
        missing = [files[name] for name in sure if name not in importable]
        if missing:
            raise FileError(
                f"{script} imports {' and '.join(missing)} beside it, and would go to the workers "
                f"alone: --code {folder} sends the folder, --code {script} the script alone"
            )
    left = [REQUIREMENTS] if (folder / REQUIREMENTS).is_file() else []
    left += files.values()
    left += [file for file in named_files(script) if file not in (*left, script.name)]
    if left:
        without = " and ".join(left)
        yield f"only {script} goes to the workers, without {without} beside it: --code {folder}"


def drop_own_modules(modules: Iterable[str], folders: Sequence[Path]) -> set[str]:
    """Return the modules that no folder of the code has."""
    return {
        module
        for module in modules
        if not any(module_file(folder, module.partition(".")[0]) for folder in folders)
    }


def named_files(script: Path) -> list[str]:
    """Return the files below a script's folder that a text in the script names, sorted."""
    try:
        tree = ast.parse(read_text(script))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {text for text in texts if isinstance(text, str) and _FILE_NAME.fullmatch(text)}
    return sorted(name for name in names if (script.parent / name).is_file())


def module_file(folder: Path, name: str) -> str:
    """Return a folder's file or Python folder of a module; empty if it has none.

    `name` is the top-level name of the module.
    """
    if not name:
        return ""
    if (folder / f"{name}.py").is_file():
        return f"{name}.py"
    return f"{name}/" if any((folder / name).glob("*.py")) else ""


def is_regular(folder: Path, name: str) -> bool:
    """Return whether a folder has a module that Python prefers to an installed package.

    The module and the package have this name.
    """
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def read_text(file: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""

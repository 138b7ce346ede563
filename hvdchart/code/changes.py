"""Wait for changes of a script or a folder on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from watchfiles import DefaultFilter, watch
from watchfiles.main import FileChange

from hvdchart.code.archive import pack_code
from hvdchart.errors import FileError
from hvdchart.spec.yaml_tree import Plain

T = TypeVar("T")
# Milliseconds: an editor writes a file in several steps, which count as one change.
_DEBOUNCE_MILLISECONDS = 200
_STEP_MILLISECONDS = 20
# Milliseconds without a change after which the watch returns: when it returns first, the watch is
# active.
_TICK_MILLISECONDS = 500


def code_changes(
    path: Path, report: Callable[[str], object] = lambda line: None
) -> Iterator[dict[str, Plain] | FileError]:
    """Yield each version of a script or folder as the chart's value `code`, or why there is none.

    A change of ignored files only gives no new version. `report` gets a line about secrets that are
    left out, once. Raises KeyboardInterrupt on Ctrl-C.
    """
    # Use an absolute path: the working directory may change or disappear.
    path = path.absolute()
    return watch_versions(path, partial(pack_code, path, cache(report)))


def watch_versions(path: Path, read: Callable[[], T]) -> Iterator[T | FileError]:
    """Yield what `read` returns now, and again when a change below the path has changed it.

    The path is absolute. Changes that are made while the caller works are not missed. Yields the
    FileError of `read`. Raises KeyboardInterrupt on Ctrl-C.
    """
    last: T | None = None
    for _ in _signals(path):
        try:
            version = read()
        except FileError as error:
            # A file disappeared while it was read, or the code is too large: another save may fix
            # it.
            yield error
            continue
        if version != last:
            last = version
            yield version


def _signals(path: Path) -> Iterator[None]:
    """Yield now, and each time that something may have changed.

    The system reports changes of a folder, but not its replacement by another folder of the same
    name. After a replacement, watch the new folder.
    """
    while True:
        yield
        while (identity := _identity(path)) is None:
            time.sleep(_TICK_MILLISECONDS / 1000)
        is_new = True
        with suppress(FileNotFoundError), closing(_watch(path)) as changes:
            for changed in changes:
                # Yield also at the first timeout: something may have changed before the watch was
                # active.
                if changed or is_new:
                    yield
                is_new = False
                if _identity(path) != identity:
                    break


def _find_watched_folder(path: Path) -> Path:
    """Return the folder to watch: an editor may replace a script by another file."""
    return path if path.is_dir() else path.resolve().parent


def _identity(path: Path) -> tuple[int, int] | None:
    """Identify the folder to watch; return None without a folder."""
    try:
        status = _find_watched_folder(path).stat()
    except (OSError, RuntimeError):
        return None
    return status.st_dev, status.st_ino


def _watch(path: Path) -> Generator[set[FileChange], None, None]:
    # Beside a script may be a data set, and below a folder what belongs to another user.
    return watch(
        _find_watched_folder(path),
        recursive=path.is_dir(),
        ignore_permission_denied=True,
        watch_filter=DefaultFilter(),
        debounce=_DEBOUNCE_MILLISECONDS,
        step=_STEP_MILLISECONDS,
        raise_interrupt=True,
        rust_timeout=_TICK_MILLISECONDS,
        yield_on_timeout=True,
    )

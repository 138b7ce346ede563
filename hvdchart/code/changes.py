"""Waits for changes of the user's code on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from watchfiles import DefaultFilter, watch

from hvdchart.code.archive import pack_code
from hvdchart.errors import FileError
from hvdchart.spec.yaml_tree import Plain

# Milliseconds: an editor writes a file in several steps, which are one change.
_DEBOUNCE = 200
_STEP = 20
# Milliseconds without a change after which the watch returns: the first time, it has begun by then.
_TICK = 500


def code_changes(
    path: Path, report: Callable[[str], object] = lambda line: None
) -> Iterator[dict[str, Plain] | FileError]:
    """Yield each version of a script or folder as the chart's value `code`, or why it is none.

    The present one comes first. A change of ignored files alone is no new version. `report` gets a
    line about secrets that are left out, once. Raises KeyboardInterrupt on Ctrl-C.
    """
    # A line is reported once.
    said = cache(report)
    last: dict[str, Plain] | None = None
    # An editor may replace a script by another file, so that its folder is watched.
    changes = watch(
        path if path.is_dir() else path.resolve().parent,
        watch_filter=DefaultFilter(),
        debounce=_DEBOUNCE,
        step=_STEP,
        raise_interrupt=True,
        rust_timeout=_TICK,
        yield_on_timeout=True,
    )
    for number, changed in enumerate(chain([set[object]()], changes)):
        # The first time without a change, too: the code may have changed before the watch.
        if number > 1 and not changed:
            continue
        try:
            packed = pack_code(path, said)
        except FileError as error:
            # A file vanished while it was packed, or the code is too large: a save may help.
            yield error
            continue
        if packed != last:
            last = packed
            yield packed

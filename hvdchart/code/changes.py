"""Waits for changes of the user's code on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from watchfiles import DefaultFilter, watch

from hvdchart.code.archive import pack_code
from hvdchart.errors import FileError
from hvdchart.spec.yaml_tree import Plain

# Milliseconds: an editor writes a file in several steps, which are one change.
_DEBOUNCE, _STEP = 200, 20
# Milliseconds without a change after which the watch returns: the first time, it has begun by then.
_TICK = 500


class CodeChanges:
    """The versions of a script or a folder, from the present one on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[str, Plain] | None = None

    def __iter__(self) -> Iterator[dict[str, Plain] | FileError]:
        """Yield each new version as the chart's value `code`, or why it cannot be packed.

        A change of ignored files alone is no new version. A later loop continues where the last
        ended. Raises KeyboardInterrupt on Ctrl-C.
        """
        yield from self._new_version()
        # An editor may replace a script by another file, so that its folder is watched.
        folder = self._path if self._path.is_dir() else self._path.resolve().parent
        changes = watch(
            folder, watch_filter=DefaultFilter(), debounce=_DEBOUNCE, step=_STEP,
            raise_interrupt=True, rust_timeout=_TICK, yield_on_timeout=True,
        )  # fmt: skip
        is_first = True
        for changed in changes:
            # The first time without a change, too: the code may have changed before the watch.
            if changed or is_first:
                yield from self._new_version()
            is_first = False

    def _new_version(self) -> Iterator[dict[str, Plain] | FileError]:
        try:
            packed = pack_code(self._path)
        except FileError as error:
            # A file vanished while it was packed, or the code is too large: the next save may help.
            yield error
            return
        if packed != self._last:
            self._last = packed
            yield packed

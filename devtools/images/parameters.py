"""What `--set` may change of an image: pure rules over the entries of versions.yaml.

An image's parameters are its versions, its options (words to choose one from, the default first,
or some of, with commas between) and its suite, a release of Debian or Ubuntu. `combinations` are
rows of what goes together. A version that a row leaves out is the default one there; an option that
it leaves out may be any of its words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from devtools.common.errors import ImageError

Row = Mapping[str, tuple[str, ...]]
_LIBRARY_IMAGE = re.compile(r"[a-z]+:[0-9A-Za-z._-]+")
_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")


@dataclass(frozen=True)
class Option:
    """What may be chosen: one of `words`, or with `several` some of them, with commas between."""

    words: tuple[str, ...]
    default: str
    several: bool = False

    def chosen(self, said: str, value: str) -> str:
        """`value`, several words in the order that the option has them in. Raises ImageError for
        what is no choice; `said` is how it was asked for.
        """
        asked = value.split(",") if self.several else [value]
        strange = [word for word in asked if word not in self.words]
        if strange:
            some = "some, with commas between, of" if self.several else "one of"
            whose = f" ({strange[0]!r})" if self.several else ""
            raise ImageError(
                f"{said}={value}: no such choice{whose}", f"use {some} {', '.join(self.words)}"
            )
        return ",".join(word for word in self.words if word in asked)


def choose(
    name: str, defaults: Mapping[str, str], rows: Sequence[Row], wanted: Mapping[str, str]
) -> dict[str, str]:
    """All parameters of image `name`: `wanted` where set, else the default, else the first value
    that goes with what is wanted.

    The first row that has all of `wanted` decides. Raises ImageError, with the rows there are, when
    none has.
    """
    if not rows:
        return {**defaults, **wanted}
    for row in rows:
        if all(_accepts(row, key, value) for key, value in wanted.items()):
            kept = {
                key: value if _accepts(row, key, value) else row[key][0]
                for key, value in defaults.items()
            }
            return {**kept, **wanted}
    asked = ", ".join(f"{key}={value}" for key, value in wanted.items())
    raise ImageError(
        f"{name} with {asked} is not among the combinations that work",
        "choose from one of these rows (images/versions.yaml):\n" + describe(rows),
    )


def describe(rows: Sequence[Row]) -> str:
    """The rows for a person, one a line."""
    return "\n".join(
        "    " + "; ".join(f"{key} {' or '.join(values)}" for key, values in row.items())
        for row in rows
    )


def _accepts(row: Row, key: str, value: str) -> bool:
    return key not in row or value in row[key]


def read_rows(
    where: str, written: object, known: Mapping[str, str], options: Collection[str]
) -> list[Row]:
    """`combinations` of versions.yaml. Raises ImageError for what is no row of known parameters,
    and when the defaults themselves are not in the first.
    """
    if not isinstance(written, list):
        raise ImageError(f"{where} is {written!r}, expected a list of rows", "see images/README.md")
    rows: list[Row] = []
    for number, item in enumerate(written):
        place = f"{where}[{number}]"
        if not isinstance(item, dict) or not item:
            raise ImageError(f"{place} is {item!r}, expected a mapping", "see images/README.md")
        strange = sorted(set(item) - set(known))
        if strange:
            raise ImageError(
                f"{place} has {', '.join(strange)}, no parameter of this image",
                f"use {', '.join(known)}",
            )
        row = {key: _words(f"{place}.{key}", value) for key, value in item.items()}
        fixed = {key: (value,) for key, value in known.items() if key not in {*row, *options}}
        rows.append({**row, **fixed})
    if rows and choose(where, known, rows, {}) != dict(known):
        raise ImageError(
            f"{where}: the defaults are not in the first row", "mend the row or the defaults"
        )
    return rows


def read_bases(where: str, written: object) -> Mapping[str, str]:
    """By release the public image, of Docker's own library: NAME:TAG."""
    if not isinstance(written, dict):
        raise ImageError(f"{where} is {written!r}, expected a mapping", "see images/README.md")
    for release, image in written.items():
        if not isinstance(image, str) or not _LIBRARY_IMAGE.fullmatch(image):
            raise ImageError(
                f"{where}.{release} is {image!r}, expected DISTRIBUTION:TAG", "write ubuntu:noble"
            )
    return written


def read_options(where: str, written: object) -> dict[str, Option]:
    """`options` of versions.yaml: what may be chosen for each. Raises ImageError for another
    form.
    """
    if not isinstance(written, dict):
        raise ImageError(f"{where} is {written!r}, expected a mapping", "see images/README.md")
    return {key: _option(f"{where}.{key}", value) for key, value in written.items()}


def _option(where: str, written: object) -> Option:
    if not isinstance(written, dict):
        words = _words(where, written)
        return Option(words, words[0])
    if set(written) != {"some of", "default"}:
        raise ImageError(
            f"{where} has {', '.join(map(str, written)) or 'nothing'}",
            "write a list, or a mapping of `some of` and `default`",
        )
    words = _words(f"{where}.some of", written["some of"])
    several = Option(words, ",".join(_words(f"{where}.default", written["default"])), several=True)
    several.chosen(f"{where}.default", several.default)
    return several


def _words(where: str, value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    for item in values:
        if not isinstance(item, str) or not _WORD.fullmatch(item):
            raise ImageError(f"{where} has {item!r}, expected a word", "put versions in quotes")
    if not values:
        raise ImageError(f"{where} is empty", "give it a value at least")
    return tuple(values)


def selected(line: str, parameters: Mapping[str, str]) -> str | None:
    """A line that may end in `# only: KEY=VALUE`, without that; None when a parameter is another.

    Raises ImageError for a key that is no parameter.
    """
    text, mark, condition = line.partition("# only:")
    if not mark:
        return line
    key, _, value = condition.strip().partition("=")
    if key not in parameters:
        raise ImageError(
            f"{line.strip()!r}: {key} is no parameter", f"use one of {', '.join(parameters)}"
        )
    return text.rstrip() if parameters[key] == value else None

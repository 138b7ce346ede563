"""What `--set` can change of an image: pure rules over the entries of versions.yaml.

The parameters of an image are its versions, its suite (the release of Debian or Ubuntu) and its
options, such as the GPUs that Horovod is compiled for. `versions` of an entry is a list of rows: in
each row, the versions that work together. The first value of the first row is the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devtools.common.errors import DevtoolsError

Row = Mapping[str, tuple[str, ...]]
_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")
_CONDITIONAL = re.compile(r"(?P<text>.+) if (?P<key>[a-z0-9-]+)=(?P<value>\S+)")


@dataclass(frozen=True)
class ParameterOption:
    """A choice of some of `words`, separated by commas."""

    words: tuple[str, ...]
    default: str

    def check(self, place: str, value: str) -> str:
        """Return the words of `value` in the option's order. Raises DevtoolsError for others."""
        asked = value.split(",")
        unknown = [word for word in asked if word not in self.words]
        if unknown:
            raise DevtoolsError(
                f"{place}={value}: {unknown[0]!r} is not a choice",
                f"use some, separated by commas, of {', '.join(self.words)}",
            )
        return ",".join(word for word in self.words if word in asked)


def choose_parameters(
    name: str,
    defaults: Mapping[str, str],
    rows: Sequence[Row],
    wanted: Mapping[str, str],
    *,
    allows_untested: bool,
) -> dict[str, str]:
    """Return all parameters of image `name`.

    They come from the first row that has all of `wanted`, or with `allows_untested` from the row
    that has most of it. A parameter that is not wanted keeps its default if the row has it, else it
    takes the row's first value. Without rows, everything wanted is accepted. Raises DevtoolsError,
    which lists the rows, if no row has what is wanted.
    """
    if not rows:
        return {**defaults, **wanted}
    had = [sum(_accepts(row, key, value) for key, value in wanted.items()) for row in rows]
    if allows_untested or max(had) == len(wanted):
        row = rows[had.index(max(had))]
        fitting = {
            key: value if _accepts(row, key, value) else row[key][0]
            for key, value in defaults.items()
        }
        return {**fitting, **wanted}
    asked = ", ".join(f"{key}={value}" for key, value in wanted.items())
    raise DevtoolsError(
        f"{name} with {asked} is not among the combinations that work",
        "choose from one of these rows (images/versions.yaml):\n"
        + "\n".join(
            "    " + "; ".join(f"{key} {' or '.join(values)}" for key, values in row.items())
            for row in rows
        ),
    )


def _accepts(row: Row, key: str, value: str) -> bool:
    return key not in row or value in row[key]


def read_rows(
    place: str, written: Sequence[Mapping[str, object]], shared: Mapping[str, str]
) -> list[Row]:
    """Return the rows of `versions` with the keys of `shared`.

    Raises DevtoolsError if rows have unequal keys.
    """
    rows: list[Row] = []
    for number, item in enumerate(written):
        row_place = f"{place}[{number}]"
        rows.append(
            {
                key: read_words(f"{row_place}.{key}", words)
                for key, words in {**shared, **item}.items()
            }
        )
        if set(rows[number]) != set(rows[0]):
            raise DevtoolsError(
                f"{row_place} has the keys {', '.join(item)}, and the first row "
                f"{', '.join(rows[0])}",
                "give all rows the same keys",
            )
    return rows


def read_option(place: str, written: Mapping[str, object]) -> ParameterOption:
    """Return an entry of `options` of versions.yaml.

    Raises DevtoolsError if it is malformed.
    """
    words = read_words(f"{place}.some of", written["some of"])
    default = ",".join(read_words(f"{place}.default", written["default"]))
    option = ParameterOption(words, default)
    option.check(f"{place}.default", default)
    return option


def read_words(place: str, value: object) -> tuple[str, ...]:
    """Return one word or the words of a list.

    Raises DevtoolsError for anything else: YAML reads an unquoted 3.10 as the number 3.1.
    """
    values = value if isinstance(value, list) else [value]
    for item in values:
        if not isinstance(item, str) or not _WORD.fullmatch(item):
            raise DevtoolsError(f"{place} is {item!r}, expected a word", 'quote versions: "3.11"')
    return tuple(values)


def apply_condition(text: str, parameters: Mapping[str, str]) -> str | None:
    """Return `text` without the condition ` if KEY=VALUE` at its end; None if that is false.

    Raises DevtoolsError if KEY is not a parameter.
    """
    match = _CONDITIONAL.fullmatch(text)
    if match is None:
        return text
    if match["key"] not in parameters:
        raise DevtoolsError(
            f"{text!r}: {match['key']} is not a parameter", f"use one of {', '.join(parameters)}"
        )
    return match["text"] if parameters[match["key"]] == match["value"] else None

"""Numbers as ranges, in the form of the kernel's lists: 0-3,8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hvd_pods.shared.untrusted import MAX_COUNTED, parse_count


def format_ranges(numbers: Iterable[int]) -> list[str]:
    """Return the ranges of numbers, in their order: `0-31` and `40`."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return [f"{first}-{last}" if first != last else str(first) for first, last in ranges]


def parse_ranges(text: str) -> Iterator[range]:
    """Yield the ranges in a text such as 0-3,8; none for an empty text.

    Raises ValueError for any other text, and for numbers above MAX_COUNTED.
    """
    for part in text.split(",") if text != "" else ():
        first, _, last = part.partition("-")
        begin = parse_count(first, MAX_COUNTED)
        end = parse_count(last or first, MAX_COUNTED)
        if begin is None or end is None:
            raise ValueError(f"{part!r} is no range of numbers")
        yield range(begin, end + 1)


def parse_pod_names(workers: str) -> Iterator[str]:
    """Yield the pods of `STATEFULSET:ORDINALS...` in their order.

    Raises ValueError for ordinals that are not numbers.
    """
    for part in workers.split():
        name, _, ordinals = part.partition(":")
        for numbers in parse_ranges(ordinals):
            yield from (f"{name}-{number}" for number in numbers)

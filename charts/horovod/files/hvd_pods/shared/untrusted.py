"""Text and files from untrusted writers: training code, another container, an API server.

All such content goes through this module before it is shown or used. pod/connections.py
protects in the same way against connections.
"""

from __future__ import annotations

import os
import stat

# The limits for untrusted content: characters of a text in one line of a log, and bytes of a file.
MAX_TEXT_CHARACTERS = 600
MAX_FILE_BYTES = 1 << 20
# The highest number of a rank, a worker, a CPU or an attempt: a list of more would be too long.
MAX_COUNTED = 1_000_000
# Harmless characters that Python does not call printable: spaces, such as those before French
# punctuation, and joiners of emoji. Characters that change the direction of text are excluded.
_SHOWN = frozenset("\u00a0\u1680\u200d\u202f\u205f\u3000").union(map(chr, range(0x2000, 0x200B)))


def printable(text: str, keeps: str = "\n\t") -> str:
    """Escape characters that no encoding supports or that control a terminal, except for `keeps`.

    A file name that is not UTF-8 has lone surrogates in Python, which cannot be printed. If `keeps`
    is empty, as for a key or a name, spaces that look like other spaces are escaped, too.
    """
    if text.isprintable():
        return text
    shown = _SHOWN.union(keeps) if keeps else frozenset()
    return "".join(
        character
        if character.isprintable() or character in shown
        else character.encode("unicode_escape").decode()
        for character in text
    )


def one_line(text: str, longest: int = MAX_TEXT_CHARACTERS) -> str:
    """Return a text as one line without control characters, cut at `longest` characters.

    Each stretch of white space becomes one space. A line that was cut ends with ` ...`.
    """
    line = printable(" ".join(text[: 2 * longest].split()), keeps="")
    return line if len(line) <= longest else f"{line[: longest - 4]} ..."


def read_file(
    path: str | os.PathLike[str], most: int = MAX_FILE_BYTES, *, has_one_name: bool = False
) -> bytes:
    """Return the first `most` bytes of a regular file. Raises OSError for anything else.

    A process that can write to the folder could create a link to a file that only this process may
    read, or a FIFO, whose opening waits for a writer. With `has_one_name`, refuse a file with hard
    links, too: they would turn one large file into many.
    """

    def open_safely(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    with open(path, "rb", opener=open_safely) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no regular file")
        if has_one_name and status.st_nlink > 1:
            raise OSError(f"{path} is a hard link")
        return file.read(most)


def parse_count(text: str, largest: int) -> int | None:
    """Parse a decimal number between 0 and `largest`; None for anything else.

    Python takes seconds for a number with many thousand digits, or refuses it. Therefore a text
    with more digits than `largest` is not parsed.
    """
    is_short = len(text) <= len(str(largest))
    if not (is_short and text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number <= largest else None

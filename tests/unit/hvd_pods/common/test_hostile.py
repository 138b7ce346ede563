"""Foreign text is shown without controls, and foreign files are read without waiting or leaving."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unicodedata import category

import pytest

from hvd_pods.common import hostile


def test_spaces_and_joined_emoji_are_shown_and_what_turns_or_controls_text_is_escaped() -> None:
    harmless = "Verlust\u00a0: 1\u202f000\u3000\U0001f469\u200d\U0001f52c"
    assert hostile.printable(harmless) == harmless
    spaces = {chr(code) for code in range(sys.maxunicode + 1) if category(chr(code)) == "Zs"}
    others = "".join(chr(c) for c in range(0x3001) if chr(c) not in {*spaces, "\u200d", "\n", "\t"})
    assert hostile.printable(text := "".join(spaces)) == text
    assert hostile.printable(others).isprintable()
    assert (
        hostile.printable("\u202eexe\u2066\ufeff\x1b\u2028") == r"\u202eexe\u2066\ufeff\x1b\u2028"
    )


def test_only_regular_files_are_read_and_no_more_than_asked(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the private key")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("link", "fifo", "folder", "missing"):
        with pytest.raises(OSError, match=name):
            hostile.read_file(tmp_path / name)
    assert hostile.read_file(tmp_path / "secret", 3) == b"the"


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("4096", 4096), ("4097", None), ("9" * 5000, None), ("-1", None), ("٣", None)],
)
def test_only_small_decimal_numbers_are_counts(text: str, number: int | None) -> None:
    assert hostile.parse_count(text, 4096) == number

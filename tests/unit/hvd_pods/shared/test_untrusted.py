"""Foreign text is shown without controls, and foreign files are read without waiting or leaving."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unicodedata import category

import pytest

from hvd_pods.shared import untrusted

SPACES = {chr(code) for code in range(sys.maxunicode + 1) if category(chr(code)) == "Zs"}


@pytest.mark.parametrize(
    "text",
    ["Verlust\u00a0: 1\u202f000\u3000\U0001f469\u200d\U0001f52c", "".join(sorted(SPACES))],
    ids=["a sentence", "all spaces"],
)
def test_spaces_and_joined_emoji_are_shown(text: str) -> None:
    assert untrusted.printable(text) == text


def test_what_turns_or_controls_text_is_escaped() -> None:
    shown = untrusted.printable("\u202eexe\u2066\ufeff\x1b\u2028")
    assert shown == r"\u202eexe\u2066\ufeff\x1b\u2028"


def test_all_but_spaces_and_what_joins_emoji_is_printable_afterwards() -> None:
    harmless = {*SPACES, "\u200d", "\n", "\t"}
    others = {chr(code) for code in range(0x3001)} - harmless
    assert untrusted.printable("".join(sorted(others))).isprintable()


@pytest.mark.parametrize("name", ["link", "fifo", "folder", "missing"])
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("the private key")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=name):
        untrusted.read_file(tmp_path / name)


def test_no_more_of_a_file_is_read_than_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("the private key")
    assert untrusted.read_file(tmp_path / "file", 3) == b"the"


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("4096", 4096), ("4097", None), ("9" * 5000, None), ("-1", None), ("٣", None)],
)
def test_only_small_decimal_numbers_are_counts(text: str, number: int | None) -> None:
    assert untrusted.parse_count(text, 4096) == number

"""The page of the command lists its arguments and options, with their limits and defaults."""

from __future__ import annotations

from devtools.docs_gen.reference_docs import COMMAND, command_page


def test_page_of_the_command_is_current() -> None:
    assert COMMAND.read_text() == command_page(), "run `make generate`"

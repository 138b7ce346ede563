"""Values of options that several subcommands share."""

from __future__ import annotations

import pytest
import typer

from hvdchart.cli.options import parse_duration, parse_numbers, print_document, split_words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, None), ("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("3d", 259_200)],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str | None, seconds: int | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5w", "-5", "1.5h", "1234567890", "5m "])
def test_another_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration such as 90s, 5m, 2h or 1d"):
        parse_duration(text)


def test_numbers_and_words_are_read() -> None:
    assert parse_numbers("omp", "") == ()
    assert parse_numbers("omp", "1, 2,123456") == (1, 2, 123456)
    assert split_words("command", "a 'b c'") == ["a", "b c"]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("json", '{\n  "b": "\\u00e9",\n  "a": [\n    1\n  ]\n}\n'),
        ("yaml", "---\nb: é\na:\n- 1\n"),
    ],
)
def test_documents_keep_their_order(
    capsys: pytest.CaptureFixture[str], output: str, text: str
) -> None:
    print_document({"b": "é", "a": [1]}, output)
    assert capsys.readouterr().out == text

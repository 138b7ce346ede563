"""The progress in the record is read as its master has written it, and by everyone alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.common.repository import ROOT
from devtools.pods.program_copies import POD_PROGRAMS
from hvd_pods.shared import record as records
from hvd_pods.shared.record import (
    MAX_LOSSES,
    MAX_RECORD_NUMBER,
    ProgressEntry,
    RecordKey,
    read_progress,
)

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)
COUNTS = st.integers(0, MAX_RECORD_NUMBER)
NUMBERS = st.floats(-MAX_RECORD_NUMBER, MAX_RECORD_NUMBER)
LOSSES = st.dictionaries(COUNTS, NUMBERS, max_size=MAX_LOSSES)
ENTRIES = st.builds(
    ProgressEntry,
    step=COUNTS,
    steps=st.none() | COUNTS,
    loss=st.none() | NUMBERS | st.just("nan"),
    samples_per_second=st.none() | NUMBERS,
    seconds_left=st.none() | COUNTS,
    time=st.just("2026-01-01T10:00:00Z"),
    is_counted=st.booleans(),
    losses=LOSSES.map(lambda found: tuple(sorted(found.items()))),
)


def read(content: Any) -> ProgressEntry:
    return read_progress({RecordKey.PROGRESS: json.dumps(content)})


@pytest.mark.fuzz
@given(ENTRIES)
def test_what_a_master_writes_of_the_progress_is_read_again(entry: ProgressEntry) -> None:
    assert read_progress({RecordKey.PROGRESS: entry.text()}) == entry


def test_an_entry_without_anything_is_empty_in_the_record() -> None:
    assert ProgressEntry().text() == ""
    assert read_progress({}) == ProgressEntry()


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "{", "[" * 9999, '{"losses": 3}', '{"losses": [[1, "x"], 2, [1]]}']
)
def test_what_is_no_progress_is_left_out(text: str) -> None:
    assert read_progress({RecordKey.PROGRESS: text}) == ProgressEntry()


@pytest.mark.parametrize(
    "pair",
    [
        "[1e999, 1]",
        "[1, 1e999]",
        "[1, NaN]",
        "[-1, 1]",
        f"[{10 * MAX_RECORD_NUMBER}, 1]",
        '["1", 1]',
    ],
)
def test_a_loss_that_is_not_understood_leaves_the_others(pair: str) -> None:
    text = f'{{"losses": [[20, 0.25], {pair}, [10, 0.5]]}}'
    assert read_progress({RecordKey.PROGRESS: text}).losses == ((10, 0.5), (20, 0.25))


def test_no_more_losses_are_read_than_a_master_writes() -> None:
    found = read({"losses": [[step, 0.5] for step in range(2 * MAX_LOSSES)]})
    assert len(found.losses) == MAX_LOSSES


@pytest.mark.parametrize(
    ("step", "loss", "curve"),
    [
        (30, 0.125, ((10, 0.5), (20, 0.25), (30, 0.125))),
        (20, 0.125, ((10, 0.5), (20, 0.125))),
        (30, "nan", ((10, 0.5), (20, 0.25))),
        (None, 0.125, ((10, 0.5), (20, 0.25))),
    ],
)
def test_the_curve_ends_with_the_loss_of_the_last_step(
    step: int | None, loss: object, curve: tuple[tuple[int, float], ...]
) -> None:
    found = read({"step": step, "loss": loss, "losses": [[10, 0.5], [20, 0.25]]})
    assert found.curve == curve


@pytest.mark.fuzz
@given(
    st.dictionaries(
        st.sampled_from(["step", "steps", "loss", "samplesPerSecond", "secondsLeft", "time"]),
        ANYTHING,
    ),
    ANYTHING,
)
def test_any_progress_is_read(content: dict[str, Any], losses: Any) -> None:
    found = read({**content, "losses": losses})
    assert len(found.losses) <= MAX_LOSSES
    assert found.step is None or 0 <= found.step <= MAX_RECORD_NUMBER


def test_only_this_module_and_the_chart_spell_the_keys() -> None:
    """A key that only one of them renames would be read as missing."""
    own = {
        RecordKey.HOLDER_JOB,
        RecordKey.HOLDER_UID,
        RecordKey.SUPERSEDED,
        RecordKey.TRAINED,
        RecordKey.ORPHAN_FENCE,
        RecordKey.RENEWED,
    }
    word = re.compile(rf"[\"']({'|'.join(own)})[\"']")
    here = Path(records.__file__).resolve()
    folders = (POD_PROGRAMS, ROOT / "hvdchart")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    assert {file for file in files if word.search(file.read_text())} == {here}

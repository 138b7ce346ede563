"""What a State takes, and how it counts."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.library import keep
from tests.unit.hvd_pods.library.keep.scripts import resume, train


def after_nine_steps() -> Any:
    """A state that continues after the ninth step of a training with epochs of four."""
    state = train(9)
    assert state.epochs(4) == 2
    state.commit(9)
    del state
    return train()


def model(**more: Any) -> Any:
    """As Keras has them; with `apply_gradients` it is an optimizer."""
    return SimpleNamespace(**{"built": False, "variables": (), **more})


def test_each_state_needs_a_name_of_its_own(worker: Path) -> None:
    # A state of an earlier test may be in a cycle that was not collected yet.
    gc.collect()
    one = train(1)
    with pytest.raises(ValueError, match=r" 'main' .*name='critic'"):
        keep.State()
    two = train(7, name="critic")
    assert (one.step, two.step) == (1, 7)
    del one, two
    assert (resume()[0], resume(name="critic")[0]) == (1, 7)


def test_the_name_of_a_state_leads_to_no_other_folder(worker: Path) -> None:
    with pytest.raises(ValueError, match=r"'\.\./a'"):
        keep.State(name="../a")


@pytest.mark.parametrize("part", ["step", "commit", "is_restored", "_kind"])
def test_a_part_does_not_replace_what_the_state_has(worker: Path, part: str) -> None:
    parts: dict[str, Any] = {part: 1}
    with pytest.raises(ValueError, match=rf"'{part}'"):
        keep.State(**parts)


def test_finished_epochs_are_counted(worker: Path) -> None:
    state = after_nine_steps()
    assert (state.epochs(4), state.step) == (2, 9)


def test_an_epoch_with_other_steps_is_begun_again(worker: Path) -> None:
    state = after_nine_steps()
    assert (state.epochs(3), state.step) == (2, 6)


def test_what_was_counted_in_longer_epochs_is_older(worker: Path) -> None:
    state = after_nine_steps()
    state.epochs(3)
    state.commit(7)
    del state
    assert resume()[0] == 7


def test_a_script_may_count_its_steps_anew(worker: Path) -> None:
    train(9)
    train(2)
    assert resume()[0] == 2


def test_ranks_that_have_not_found_each_other_are_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=" 2 ranks"):
        train()


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"net": model(trainable_variables=())}, r"\bnet "),
        ({"slow": model(apply_gradients=0)}, r"\bslow .* 0 models"),
        (
            {name: model(built=True, trainable_variables=()) for name in ("critic", "actor")}
            | {"slow": model(apply_gradients=0)},
            r"\bslow .* 2 models .* slow\.build\(",
        ),
    ],
)
def test_what_has_no_variables_yet_is_refused(
    worker: Path, parts: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        keep.State(**parts)


def test_what_has_its_variables_is_kept(worker: Path) -> None:
    assert keep.State(slow=model(built=True, apply_gradients=0)).restore() == 0

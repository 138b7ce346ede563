"""keep.py with each framework: the next attempt goes on where the ranks have been."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devtools.trials.sandbox import TWO_RANKS, output_of
from tests.images.conftest import Sandboxes
from tests.results import result

SCRIPT = Path(__file__).with_name("keep_ranks.py")


@pytest.mark.parametrize(
    ("name", "framework"),
    [("examples", "tensorflow"), ("examples-2.15", "tensorflow"), ("examples-pytorch", "torch")],
)
def test_ranks_go_on_with_the_newest_state_that_any_of_them_has(
    sandboxes: Sandboxes, name: str, framework: str
) -> None:
    sandbox = sandboxes(name)
    (sandbox.folder / "kept").mkdir()
    (sandbox.folder / "kept").chmod(0o777)
    shutil.copy(SCRIPT, sandbox.folder)
    done = sandbox.run(
        *TWO_RANKS, "python3", f"/output/{SCRIPT.name}", framework, "/output/kept",
        PYTHONPATH="/examples",
    )  # fmt: skip
    assert done.returncode == 0, output_of(done)
    ranks = result(done)["ranks"]
    for number, told in enumerate(ranks):
        found = told["found"]
        went_on = {name: step for name, (step, _) in found.items()}
        assert went_on == {
            "undisturbed": 0, "all are there": 7, "rank 1 is new": 7, "rank 0 is new": 7,
            "all are new": 5, "interrupted": 6,
        }  # fmt: skip
        # Without seeds of Keras' own, the dropout of TensorFlow 2.15 is not part of the state.
        if name != "examples-2.15":
            for case in ("all are there", "interrupted"):
                assert found[case] == [went_on[case], found["undisturbed"][1]], (number, case)
        print(f"{name}: a commit of 100 MB: {told['commit']:.0f} ms, to restore it: "
              f"{told['restore']:.0f} ms")  # fmt: skip
    if framework == "tensorflow":
        # All weights are averaged: new random numbers of a new rank change them on both.
        for case, (_, digest) in ranks[0]["found"].items():
            assert digest == ranks[1]["found"][case][1], case

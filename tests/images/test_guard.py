"""Attacks on horovodrun in an elastic run, bare and behind the chart's guard (master/guard.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from images.trials.sandbox import OWN_UID, Sandbox, make_open_folder, output_of
from tests.images.test_elastic import discover

HERE = Path(__file__).parent
FILES = HERE.parents[1] / "charts" / "horovod" / "files" / "hvd_pods"
ELASTIC = (
    "-np",
    "1",
    "--min-np",
    "1",
    "--max-np",
    "1",
    "--host-discovery-script",
    "/output/hosts",
    "--network-interface",
    "lo",
    "python3",
    "/output/hostile_rank.py",
)
GUARDED = (
    "sh",
    "-c",
    'exec python3 "$0" elastic "$(command -v horovodrun)" "$@"',
    "/output/hvd_pods/master/guard.py",
)


@pytest.mark.parametrize(
    ("launcher", "ran", "answered"),
    [
        (GUARDED, [], ["rank asks", "rank registers"]),
        # Why there is a guard.
        (
            ("horovodrun",),
            ["in-an-answer", "of-a-rank", "of-a-stranger"],
            ["stranger asks", "stranger guesses", "rank asks"],
        ),
    ],
    ids=["guarded", "bare"],
)
@pytest.mark.promise("horovodrun runs code of nobody and answers no strangers")
def test_horovodrun_runs_code_of_nobody_and_answers_no_strangers(
    inside: Sandbox, launcher: tuple[str, ...], ran: list[str], answered: list[str]
) -> None:
    shutil.copytree(FILES, inside.folder / "hvd_pods", dirs_exist_ok=True)
    shutil.copy(HERE / "hostile_rank.py", inside.folder)
    discover(inside, "localhost")
    name = "left-guarded" if launcher == GUARDED else "left-bare"
    left = make_open_folder(inside.folder / name)
    done = inside.run(
        *launcher,
        *ELASTIC,
        uid=OWN_UID,
        LEFT=f"/output/{left.name}",
        PROGRAMS="/output",
        HVD_NOTICES="127.0.0.1,1,f00d",
    )
    assert done.returncode == 0, output_of(done)
    assert sorted(folder.name for folder in left.iterdir()) == ran, output_of(done)
    found = json.loads(done.stdout.partition("RESULT ")[2])
    assert set(answered) <= set(found), output_of(done)
    if launcher == GUARDED:
        assert found == answered, output_of(done)

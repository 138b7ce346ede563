"""The U-Net and the conversion of its data: right results, and a remedy for each wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_image.sandbox import TWO_RANKS, Sandbox, make_open_folder, output_of
from tests.support.results import read_result

UNET = ("python", "unet.py", "--filters", "2", "--batch-size", "2")
RIGHT = {
    # All but the patient of 2020 whose mask has another name.
    "folders_of_each_year_are_accepted": "3",
    "patients_are_on_one_side_only": "right",
    "slices_are_cropped_and_scaled": "right",
    "ranks_read_their_own_shards_only": "",
}
CONVERT_AGAIN = "convert it again: python unet_data.py SOURCE FOLDER"
# What the message names: the file, what is wrong with it, the remedy.
WRONG = {
    "no_scan": ["/scans/a_seg.nii.gz", "a_flair.nii.gz or a_t2f.nii.gz, is missing", "--image"],
    "mask_elsewhere": ["/scans/a_seg.nii.gz", "a_flair.nii.gz", "affine", "resample"],
    "half_written": ["/data: dataset.json is missing, so it is half written", CONVERT_AGAIN],
    "overwritten_shard": ["/data/train-001.npy", "not those in dataset.json"],
}


@pytest.fixture(scope="module")
def said(examples: Sandbox) -> dict[str, str]:
    """What the converter and the reader say to each case of unet_cases.py."""
    cases = Path(__file__).with_name("unet_cases.py").read_text()
    answers: dict[str, str] = json.loads(examples.python(cases))
    return answers


@pytest.fixture(scope="module")
def whole(examples: Sandbox) -> dict[str, Any]:
    """A training of 12 steps."""
    make_open_folder(examples.folder / "whole")
    return train(examples, 12, "whole")


@pytest.fixture(scope="module")
def interrupted(examples: Sandbox) -> dict[str, Any]:
    """The same training, which ends after 7 steps."""
    make_open_folder(examples.folder / "resumed")
    return train(examples, 7, "resumed")


def test_right_files_become_a_right_data_set(said: dict[str, str]) -> None:
    assert {case: said[case] for case in RIGHT} == RIGHT


@pytest.mark.parametrize("case", WRONG)
def test_wrong_file_is_refused_with_its_name_and_a_remedy(said: dict[str, str], case: str) -> None:
    assert not [words for words in WRONG[case] if words not in said[case]], said[case]


def test_missing_data_end_a_run_before_training(examples: Sandbox) -> None:
    done = examples.run(*UNET, "--data", "/nowhere")
    assert done.returncode == 1, output_of(done)
    assert "/nowhere: no data set: convert one" in done.stderr
    assert "training from the start" not in done.stdout


def train(inside: Sandbox, steps: int, folder: str) -> dict[str, Any]:
    """The result of a training to `steps`, whose output is in a folder."""
    printed = inside.succeed(
        *TWO_RANKS,
        *UNET,
        "--steps",
        str(steps),
        "--check-every",
        "7",
        "--target-dice",
        "0",
        OUTPUT_PATH=f"/output/{folder}",
        # How many there are changes the order of sums, and with it the last bits.
        TF_NUM_INTRAOP_THREADS="1",
        TF_NUM_INTEROP_THREADS="1",
    )
    return read_result(printed)


def test_two_ranks_train_from_the_start(whole: dict[str, Any]) -> None:
    assert whole["ranks"] == 2
    assert whole["ranks_agree"] is True
    assert whole["resumed_after_step"] == 0


def test_training_leaves_logs_and_a_picture(whole: dict[str, Any], examples: Sandbox) -> None:
    written = {file.name for file in (examples.folder / "whole").iterdir()}
    assert {"logs", "predictions.png"} <= written


def test_run_that_resumes_comes_to_the_weights_of_one_that_was_not_interrupted(
    whole: dict[str, Any], interrupted: dict[str, Any], examples: Sandbox
) -> None:
    assert interrupted["weights"] != whole["weights"], "the training stands still"
    resumed = train(examples, 12, "resumed")
    assert resumed["resumed_after_step"] == 7
    assert resumed["steps"] == 12
    assert resumed["weights"] == whole["weights"]
    assert resumed["dice"] == whole["dice"]


def test_loss_that_is_not_a_number_ends_all_ranks_and_is_not_saved(examples: Sandbox) -> None:
    output = make_open_folder(examples.folder / "nan")
    # The weights of the first step are so large that the second one overflows.
    diverge = ("--learning-rate", "1e38", "--warmup-steps", "1", "--check-every", "1")
    done = examples.run(*TWO_RANKS, *UNET, *diverge, OUTPUT_PATH="/output/nan")
    assert done.returncode == 1, output_of(done)
    words = "FloatingPointError: the gradient of step 2 is not finite"
    assert done.stderr.count(words) == 2, output_of(done)
    assert not list(output.glob("keep-*"))

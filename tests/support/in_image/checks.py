"""Run the checks of `ranks` in an image and read their results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.in_image.sandbox import OWN_UID, Result, Sandbox, output_of

RANKS = Path(__file__).with_name("ranks")
# Keras 2 for the default TensorFlow of cpu.
TF_KERAS = Path(__file__).with_name("tf-keras.txt")
WITH_TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
# A rank that waits for another one reports it and fails before the time limit.
STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "60", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120"}
# A check that only that version of Keras has.
OF_KERAS_2 = "the_learning_rate_is_called_lr"
OF_KERAS_3 = "keras_accumulates_gradients"
# The features that most training scripts use.
COMMON = (
    "an_optimizer_trains_as_one_process_with_all_batches",
    "the_callbacks_broadcast_and_average",
    "elastic_state_is_saved_restored_and_synchronized",
)


def install_tf_keras(inside: Sandbox) -> None:
    """Install Keras 2 in the folder that the image mounts. Only WITH_TF_KERAS uses it."""
    options = ["--quiet", "--no-deps", "--require-hashes", "--root-user-action=ignore", "--upgrade"]
    command = [sys.executable, "-m", "pip", "install", *options, "-r", str(TF_KERAS)]
    subprocess.run([*command, "--target", str(inside.folder)], check=True)


def parse_results(done: Result) -> dict[str, dict[str, str]]:
    """Return errors by check and rank, none where a check passed. horovodrun prefixes the rank."""
    lines = [line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line]
    assert len(lines) == 1, output_of(done)
    parsed: dict[str, dict[str, str]] = json.loads(lines[0])
    return parsed


def describe_failures(results: dict[str, dict[str, str]]) -> str:
    """Return a line for each failed check and rank; empty when all passed."""
    return "\n".join(
        f"{check}, rank {rank}: {text}"
        for check, by_rank in results.items()
        for rank, text in by_rank.items()
    )


def assert_all_pass(
    inside: Sandbox, launcher: tuple[str, ...], *checks: str, **environment: str
) -> set[str]:
    """Run all checks, or the named ones, with a launcher such as mpirun and its arguments. They
    must pass on all ranks. Return their names. The image reads them from the folder that it mounts.
    """
    shutil.copytree(RANKS, inside.folder / RANKS.name, dirs_exist_ok=True)
    command = (*launcher, "python3", "-m", RANKS.name, *checks)
    done = inside.run(*command, uid=OWN_UID, PYTHONPATH="/output", **STALLS, **environment)
    results = parse_results(done)
    assert describe_failures(results) == ""
    assert results
    assert set(results) >= set(checks)
    return set(results)

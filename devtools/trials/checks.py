"""Runs the checks of `ranks` in an image and reads their results."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from devtools.trials.sandbox import OWN_UID, Result, Sandbox, output_of

RANKS = Path(__file__).with_name("ranks")
# Keras 2 for the default TensorFlow of cpu.
TF_KERAS = Path(__file__).with_name("tf-keras.txt")
WITH_TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
# A rank that waits for another one reports it and fails before the time limit.
STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "60", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120"}
# The features that most training scripts use.
COMMON = (
    "an_optimizer_trains_as_one_process_with_all_batches",
    "the_callbacks_broadcast_and_average",
    "elastic_state_is_saved_restored_and_synchronized",
)


def install_checks(inside: Sandbox) -> None:
    """Copies the checks to the folder that the image mounts."""
    shutil.copytree(RANKS, inside.folder / RANKS.name, dirs_exist_ok=True)


def install_tf_keras(inside: Sandbox) -> None:
    """Installs Keras 2 beside the checks; TensorFlow uses it only with TF_USE_LEGACY_KERAS=1."""
    options = ["--quiet", "--no-deps", "--require-hashes", "--root-user-action=ignore", "--upgrade"]
    command = [sys.executable, "-m", "pip", "install", *options, "-r", str(TF_KERAS)]
    subprocess.run([*command, "--target", str(inside.folder)], check=True)


def run_checks(
    inside: Sandbox, launcher: tuple[str, ...], *checks: str, **environment: str
) -> Result:
    """Runs all checks, or the named ones, with a launcher such as mpirun and its arguments."""
    command = (*launcher, "python3", "-m", RANKS.name, *checks)
    return inside.run(*command, uid=OWN_UID, PYTHONPATH="/output", **STALLS, **environment)


def parse_results(done: Result) -> dict[str, dict[str, str]]:
    """The errors of each check by rank; a rank on which the check passed has none. horovodrun
    prefixes each line with the rank.
    """
    lines = [line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line]
    assert len(lines) == 1, output_of(done)
    parsed: dict[str, dict[str, str]] = json.loads(lines[0])
    return parsed


def describe_failures(results: dict[str, dict[str, str]]) -> str:
    """A line for each failed check and rank; empty when all passed."""
    return "\n".join(
        f"{check}, rank {rank}: {text}"
        for check, by_rank in results.items()
        for rank, text in by_rank.items()
    )


def assert_all_pass(
    inside: Sandbox,
    launcher: tuple[str, ...],
    expected: Iterable[str],
    *checks: str,
    **environment: str,
) -> None:
    """Runs checks, which must be the expected ones and pass on all ranks."""
    results = parse_results(run_checks(inside, launcher, *checks, **environment))
    assert describe_failures(results) == ""
    assert set(results) == set(expected)


def all_checks(own: str) -> set[str]:
    """All checks for patched Horovod, with those of module `own`: keras_2 or keras_3."""
    return checks_in("any_keras") | checks_in(own)


def checks_in(name: str) -> set[str]:
    """The checks of a module of `ranks`: its functions without arguments and results."""
    return {
        node.name
        for node in ast.parse((RANKS / f"{name}.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
        and not node.args.args
        and isinstance(node.returns, ast.Constant)
    }

"""Runs the checks of `ranks` inside an image and reads what they found."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

from devtools.trials.sandbox import OWN_UID, Result, Sandbox, said

RANKS = Path(__file__).with_name("ranks")
# Keras 2 for the default TensorFlow of cpu.
TF_KERAS = Path(__file__).with_name("tf-keras.txt")
WITH_TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
# A rank that waits in vain for another says so and fails, instead of waiting for the time limit.
STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "60", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120"}
# What most training scripts use.
COMMON = (
    "an_optimizer_trains_as_one_process_with_all_batches",
    "the_callbacks_broadcast_and_average",
    "elastic_state_is_saved_restored_and_synchronized",
)


def install(inside: Sandbox) -> None:
    """Puts the checks where the image sees them."""
    shutil.copytree(RANKS, inside.folder / RANKS.name, dirs_exist_ok=True)


def install_tf_keras(inside: Sandbox) -> None:
    """Puts Keras 2 beside them: without TF_USE_LEGACY_KERAS=1 nothing looks for it."""
    options = ["--quiet", "--no-deps", "--require-hashes", "--root-user-action=ignore", "--upgrade"]
    command = [sys.executable, "-m", "pip", "install", *options, "-r", str(TF_KERAS)]
    subprocess.run([*command, "--target", str(inside.folder)], check=True)


def run(inside: Sandbox, launcher: tuple[str, ...], *checks: str, **environment: str) -> Result:
    """Runs all checks, or those named, under a launcher such as mpirun with its arguments."""
    command = (*launcher, "python3", "-m", RANKS.name, *checks)
    return inside.run(*command, uid=OWN_UID, PYTHONPATH="/output", **STALLS, **environment)


def results(done: Result) -> dict[str, dict[str, str]]:
    """By check, what was wrong on which rank. horovodrun puts the rank before each line."""
    found = [line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line]
    assert len(found) == 1, said(done)
    parsed: dict[str, dict[str, str]] = json.loads(found[0])
    return parsed


def wrong(found: dict[str, dict[str, str]]) -> str:
    """What is wrong with which checks; empty when nothing is."""
    return "\n".join(
        f"{check}, rank {rank}: {text}"
        for check, by_rank in found.items()
        for rank, text in by_rank.items()
    )


def all_checks(own: str) -> set[str]:
    """All that run on Horovod with patches, with those of `own`: keras_2 or keras_3."""
    return checks_in("any_keras") | checks_in("patched") | checks_in(own)


def checks_in(name: str) -> set[str]:
    """The checks that a module of `ranks` has: its functions that take and return nothing."""
    return {
        node.name
        for node in ast.parse((RANKS / f"{name}.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
        and not node.args.args
        and isinstance(node.returns, ast.Constant)
    }

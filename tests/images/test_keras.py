"""Horovod's Keras API on each TensorFlow that there is an image of. The checks are in `ranks`."""

from __future__ import annotations

import pytest

from devtools.images.catalogue import load_catalogue
from devtools.trials.checks import (
    COMMON,
    TF_KERAS,
    WITH_TF_KERAS,
    all_checks,
    install,
    install_tf_keras,
    results,
    run,
    wrong,
)
from devtools.trials.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox


@pytest.fixture(scope="session", autouse=True)
def checks(cpu: Sandbox, cpu_2_15: Sandbox) -> None:
    """Puts them where the images see them."""
    for inside in (cpu, cpu_2_15):
        install(inside)
    install_tf_keras(cpu)


def test_keras_3_on_two_ranks_over_mpi(cpu: Sandbox) -> None:
    found = results(run(cpu, TWO_RANKS))
    assert wrong(found) == ""
    assert set(found) == all_checks("keras_3")


def test_keras_3_on_two_ranks_over_gloo(cpu: Sandbox) -> None:
    found = results(run(cpu, TWO_RANKS_OVER_GLOO, *COMMON))
    assert wrong(found) == ""
    assert set(found) == set(COMMON)


def test_tf_keras_is_the_one_for_the_default_tensorflow() -> None:
    tensorflow = load_catalogue()["cpu"].versions["tensorflow"]
    assert TF_KERAS.read_text().startswith(f"tf-keras=={tensorflow.rpartition('.')[0]}.")


def test_tf_keras_on_two_ranks_over_mpi(cpu: Sandbox) -> None:
    found = results(run(cpu, TWO_RANKS, **WITH_TF_KERAS))
    assert wrong(found) == ""
    assert set(found) == all_checks("keras_2")


def test_tf_keras_on_two_ranks_over_gloo(cpu: Sandbox) -> None:
    found = results(run(cpu, TWO_RANKS_OVER_GLOO, *COMMON, **WITH_TF_KERAS))
    assert wrong(found) == ""
    assert set(found) == set(COMMON)


# The image of the released Horovod is checked for what most training scripts use.
def test_keras_2_on_two_ranks(cpu_2_15: Sandbox) -> None:
    found = results(run(cpu_2_15, TWO_RANKS, *COMMON))
    assert wrong(found) == ""
    assert set(found) == set(COMMON)

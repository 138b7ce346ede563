"""Horovod's Keras API on each TensorFlow that there is an image of. The checks are in `ranks`."""

from __future__ import annotations

import pytest

from devtools.images.catalogue import load_catalogue
from devtools.trials.checks import (
    COMMON,
    TF_KERAS,
    WITH_TF_KERAS,
    all_checks,
    describe_failures,
    install_checks,
    install_tf_keras,
    parse_results,
    run_checks,
)
from devtools.trials.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox


@pytest.fixture(scope="session", autouse=True)
def checks(cpu: Sandbox, cpu_2_15: Sandbox) -> None:
    """Puts them where the images see them."""
    for inside in (cpu, cpu_2_15):
        install_checks(inside)
    install_tf_keras(cpu)


def test_all_checks_of_keras_3_pass_over_mpi(cpu: Sandbox) -> None:
    results = parse_results(run_checks(cpu, TWO_RANKS))
    assert describe_failures(results) == ""
    assert set(results) == all_checks("keras_3")


def test_common_checks_of_keras_3_pass_over_gloo(cpu: Sandbox) -> None:
    results = parse_results(run_checks(cpu, TWO_RANKS_OVER_GLOO, *COMMON))
    assert describe_failures(results) == ""
    assert set(results) == set(COMMON)


def test_tf_keras_has_the_version_of_the_default_tensorflow() -> None:
    tensorflow = load_catalogue()["cpu"].versions["tensorflow"]
    assert TF_KERAS.read_text().startswith(f"tf-keras=={tensorflow.rpartition('.')[0]}.")


def test_all_checks_of_tf_keras_pass_over_mpi(cpu: Sandbox) -> None:
    results = parse_results(run_checks(cpu, TWO_RANKS, **WITH_TF_KERAS))
    assert describe_failures(results) == ""
    assert set(results) == all_checks("keras_2")


def test_common_checks_of_tf_keras_pass_over_gloo(cpu: Sandbox) -> None:
    results = parse_results(run_checks(cpu, TWO_RANKS_OVER_GLOO, *COMMON, **WITH_TF_KERAS))
    assert describe_failures(results) == ""
    assert set(results) == set(COMMON)


# The image of the released Horovod is checked for what most training scripts use.
def test_common_checks_of_keras_2_pass(cpu_2_15: Sandbox) -> None:
    results = parse_results(run_checks(cpu_2_15, TWO_RANKS, *COMMON))
    assert describe_failures(results) == ""
    assert set(results) == set(COMMON)

"""Options of `run` in the place of keys and values."""

from __future__ import annotations

import pytest

from hvd_pods.common import rank_variables
from hvdchart.chart_files import is_ranks_variable, read_data
from hvdchart.errors import SpecError
from hvdchart.run.helm_errors import REMEDIES
from hvdchart.spec.run_options import in_arguments, in_options, in_words_of_run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise worker.resources.limits.memory", "raise --memory"),
        ("correct image.repository and image.tag, or push it", "correct --image, or push it"),
        ("set imagePullSecrets", "set --set image.pullSecrets"),
        ("lower worker.number: few", "lower --workers: few"),
        ("launch.failOnNaN=true ends it", "--fail-on-nan ends it"),
        ("NaN (launch.failOnNaN)", "NaN (--fail-on-nan)"),
        (
            "raise master.resources.limits.memory",
            "raise --set values.master.resources.limits.memory",
        ),
        ("have readOnly: true", "have :ro at the end"),
        # Names in paths, in longer words and in what is worded already stay.
        ("/worker.number.py", "/worker.number.py"),
        ("add the taint to --set tolerations", "add the taint to --set tolerations"),
        ("my-worker.number", "my-worker.number"),
        ("correct volumes[].persistentVolumeClaim.claimName", "correct --volume"),
    ],
)
def test_keys_and_values_are_named_by_their_options(text: str, expected: str) -> None:
    assert in_options(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        # No values of the chart.
        "imported tensorflow, horovod.tensorflow in 2.3 s: ranks are forks of this",
        "wrote results.csv in agent.run of agent.py:3",
        # Values, in what a rank has said or the user has typed.
        "rank 1 on w-1: KeyError: worker.slots; and worker.number, loop.py:8",
        "attempt 1: a rank: ValueError: launch.mode is no launch.options",
        'rank 1: exit code 2, after "worker.slots is missing"',
        "add 'worker.env' to it",
        "[hvd +1.0s] $ mpirun -np 2 python3 train.py worker.number",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert in_options(text) == text


def test_remedy_for_an_exception_is_worded() -> None:
    cause = "rank 1 on w-1: RuntimeError: worker.slots: invalid device ordinal, a.py:8; set "
    assert in_options(f"{cause}worker.slots to 1") == f"{cause}--gpus to 1"
    where = "ranks on the node's worker start cold: variables differ from the worker's"
    assert in_options(f"{where}: set them in worker.env") == f"{where}: set them in --env"


def test_no_remedy_for_a_pod_names_a_value_of_the_chart() -> None:
    problems = read_data("pod_problems.json")
    remedies = [each["remedy"] for kind in problems.values() for each in kind.values()]
    named = [text for text in map(in_options, remedies) if "image.repository" in text]
    assert named == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise --memory to 6Gi", "raise memory= to 6Gi"),
        ("name another with --helm PATH", "name another with helm=PATH"),
        ("put files of --code into an image", "put files of code= into an image"),
        ("or --force where", "or force=True where"),
        ("give --volume", "give volumes="),
        ("check --set image.pullSecrets", "check settings= with image.pullSecrets"),
        ("--fail-on-nan ends it", "settings= with values.launch.failOnNaN=true ends it"),
        # What is a command, or an option of another program, stays.
        ("hvdchart discover --fit 3", "hvdchart discover --fit 3"),
        ("--name-only", "--name-only"),
    ],
)
def test_options_are_named_by_the_arguments_of_launch(text: str, expected: str) -> None:
    assert in_arguments(text) == expected


def test_no_remedy_of_helm_has_options_in_the_words_of_launch() -> None:
    assert [text for text in map(in_arguments, REMEDIES.values()) if " --" in text] == []


@pytest.mark.parametrize(
    ("place", "path", "expected"),
    [
        ("--memory 3", "nodes[0].memory", "--memory 3: wrong; expected --cpu"),
        ("hvdchart run", "nodes[0].count", "--workers: wrong; expected --cpu"),
        ("hvdchart run", "launch.mode", "hvdchart run: launch.mode: wrong; expected --cpu"),
        ("--set a=1", "a", "--set a=1: a: wrong; expected tuning.cpu"),
    ],
)
def test_errors_of_a_spec_name_the_option_that_was_typed(
    place: str, path: str, expected: str
) -> None:
    error = in_words_of_run(SpecError(place, path, "wrong", "tuning.cpu"))
    assert str(error) == expected


def test_variables_that_nobody_can_give_are_refused_and_no_others() -> None:
    """What worker.env says of the place where ranks meet is meant."""
    meeting = {"HVD_MEETING": "10.0.0.7 61004 a:0", "HVD_POD": "a-0"}
    names = rank_variables.choose((0, 1, 0, 1), meeting)
    given = meeting | dict.fromkeys(names, "given")
    chosen = rank_variables.choose((0, 1, 0, 1), given)
    assert {name for name in chosen if chosen[name] != "given"} == {
        name for name in names if is_ranks_variable(name)
    }
    assert is_ranks_variable("OMPI_COMM_WORLD_RANK")

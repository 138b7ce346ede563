"""Options of `run` in the place of keys and values."""

from __future__ import annotations

import pytest

from hvd_pods.pod import rank_variables
from hvdchart.chart_files import is_ranks_variable
from hvdchart.errors import SpecError
from hvdchart.run.helm_errors import REMEDIES
from hvdchart.script.options import ScriptRun
from hvdchart.script.wording import name_arguments, name_options, rephrase_for_run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise `worker.resources.limits.memory`", "raise `--memory`"),
        ("correct `image.repository` and `image.tag`, or push it", "correct `--image`, or push it"),
        ("set `imagePullSecrets`", "set `--set image.pullSecrets`"),
        ("lower `nodes[].tuning.cpu`: few", "lower `--cpu`: few"),
        ("`launch.failOnNaN=true` ends it", "`--fail-on-nan` ends it"),
        ("NaN (`launch.failOnNaN`)", "NaN (`--fail-on-nan`)"),
        ("have `readOnly: true`", "have `:ro`"),
        ("cannot unpack `code.archive`", "cannot unpack `--code`"),
        # Values and keys of a spec that have no option.
        ("raise `master.backoffLimit`", "raise `--set train.backoffLimit`"),
        ("`values.worker.spread: None`", "`--set values.worker.spread=None`"),
        ("lower `values.worker.resources.requests.cpu`", "lower `--cpu`"),
        ("try `launch.mode: direct`", "try `--set launch.mode=direct`"),
        ("give `nodes[].minimum`", "give `--set nodes.0.minimum`"),
        # A lone backtick before a name marks nothing.
        ("a.py:8: it`s; set `worker.slots` to 1", "a.py:8: it`s; set `--gpus` to 1"),
    ],
)
def test_keys_and_values_are_named_by_their_options(text: str, expected: str) -> None:
    assert name_options(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        # Not marked.
        "rank 1 on w-1: KeyError: worker.slots; and worker.number, loop.py:8",
        "[hvd +1.0s] $ mpirun -np 2 python3 train.py worker.number",
        # No values of the chart, as in what ranks say.
        "imported tensorflow, `horovod.tensorflow` in 2.3 s",
        "ValueError: `name` and `image` differ from `values.shape`, `nodes.append` and `image`",
        "add the taint to `--set tolerations`",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert name_options(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise `--memory` to 6Gi", "raise `memory=` to 6Gi"),
        ("name another with `--helm PATH`", "name another with `helm=PATH`"),
        ("or `--force` where", "or `force=True` where"),
        ("give `--volume a=b`", "give `volumes=` with `a=b`"),
        ("check `--set image.pullSecrets`", "check `settings=` with `image.pullSecrets`"),
        # What is a command, an option of another program or not marked stays.
        ("`hvdchart discover --name a`", "`hvdchart discover --name a`"),
        ("`--name-only`, --memory", "`--name-only`, --memory"),
    ],
)
def test_options_are_named_by_the_arguments_of_launch(text: str, expected: str) -> None:
    assert name_arguments(text) == expected


def test_no_remedy_of_helm_has_options_in_the_words_of_launch() -> None:
    assert [text for text in map(name_arguments, REMEDIES.values()) if " --" in text] == []


@pytest.mark.parametrize(
    ("place", "path", "expected"),
    [
        ("--memory 3", "nodes[0].memory", "--memory 3: wrong; expected `--cpu`"),
        ("hvdchart run", "nodes[0].count", "--workers: wrong; expected `--cpu`"),
        ("hvdchart run", "launch.mode", "hvdchart run: launch.mode: wrong; expected `--cpu`"),
        ("--set a=1", "a", "--set a=1: a: wrong; expected `nodes[].tuning.cpu`"),
    ],
)
def test_errors_of_a_spec_name_the_option_that_was_typed(
    place: str, path: str, expected: str
) -> None:
    error = rephrase_for_run(SpecError(place, path, "wrong", "`nodes[].tuning.cpu`"), ScriptRun())
    assert str(error) == expected


def test_variables_that_nobody_can_give_are_refused_and_no_others() -> None:
    """What worker.env says of the place where ranks meet is meant."""
    rendezvous = {"HVD_RENDEZVOUS": "10.0.0.7 61004 a:0", "HVD_POD": "a-0"}
    names = rank_variables.choose((0, 1, 0, 1), rendezvous)
    variables = rendezvous | dict.fromkeys(names, "given")
    chosen = rank_variables.choose((0, 1, 0, 1), variables)
    assert {name for name in chosen if chosen[name] != "given"} == {
        name for name in names if is_ranks_variable(name)
    }
    assert is_ranks_variable("OMPI_COMM_WORLD_RANK")

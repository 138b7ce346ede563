"""tune: the settings that it tries, its temporary run, and the block that it writes."""

from __future__ import annotations

import json
from typing import get_args

from hvdchart.cli.options import Model
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import read_spec
from hvdchart.spec.overlays import merge_specs
from hvdchart.spec.yaml_tree import parse
from hvdchart.tune.grid import (
    Measurement,
    benchmark_command,
    choose_best,
    list_settings,
    tuning_text,
)
from tests.unit.hvdchart.specs import HEAD, planned

OWN = {"OMP_NUM_THREADS": "28", "TF_NUM_INTRAOP_THREADS": "26", "TF_NUM_INTEROP_THREADS": "2"}
XEON = "{name: x, count: 16, sockets: 2, coresPerSocket: 28, threadsPerCore: 2}"


def test_settings_begin_with_the_plans_own() -> None:
    settings = list_settings(planned(XEON), {})
    assert settings[0] == OWN
    assert len({json.dumps(setting, sort_keys=True) for setting in settings}) == len(settings) == 8
    assert {setting["TF_NUM_INTRAOP_THREADS"] for setting in settings} == {"14", "26", "28", "56"}
    settings = list_settings(planned("{name: x, count: 1, coresPerSocket: 8}"), {})
    assert {setting["TF_NUM_INTRAOP_THREADS"] for setting in settings} == {"4", "6", "8"}


def test_benchmark_has_the_options_that_it_is_given() -> None:
    _, _, script, *words = benchmark_command("vgg16", 8, 5)
    assert words[:6] == ["--model", "vgg16", "--batch-size", "8", "--steps", "5"]
    for word in [*words[::2], *get_args(get_args(Model)[0])]:
        assert f'"{word}"' in script


def measured(own: tuple[float, ...], other: tuple[float, ...]) -> list[Measurement]:
    changed = {**OWN, "TF_NUM_INTRAOP_THREADS": "28"}
    return [Measurement(OWN, own, ()), Measurement(changed, other, ("crashed",))]


def test_best_setting_beats_the_plan_by_more_than_noise_in_turns() -> None:
    better = measured((10, 10.5, 9), (12, 12.5, 2))
    assert choose_best(better) is better[1]
    noise = measured((10, 14, 10), (10.1, 14.2, 10.1))
    assert choose_best(noise) is noise[0]
    drifting = measured((10, 20, 30, 40, 50), (11, 22, 33, 44, 55))
    assert choose_best(drifting) is drifting[1], "each turn is compared with itself"
    silent = measured((), (5,))
    assert choose_best(silent) is silent[1]
    shorter = measured((10, 10), (12,))
    assert choose_best(shorter) is shorter[1], "a run without a speed leaves a turn incomplete"
    failed = measured((10,), ())
    assert choose_best(failed) is failed[0]


def test_tuning_block_merges_into_the_spec() -> None:
    first = measured((10.0,), (12.0,))
    text = tuning_text(first, first, "run.spec.yaml")
    assert "The best setting is +20.0% faster than the plan's." in text
    assert "# The faster ones again, in turn with the plan's:\n#       10.00  OMP" in text
    base = f"{HEAD}name: run\nnodes: [{XEON}]\n"
    trees = [parse(base.encode(), "base"), parse(text.encode(), "tuning")]
    env = make_plan(read_spec(merge_specs(trees))).groups[0].env
    assert env["TF_NUM_INTRAOP_THREADS"] == "28"
    again = measured((10.0,), (10.0,))
    assert "keep the plan's" in tuning_text(first, again, "x")
    failed = measured((10.0,), ())
    text = tuning_text(failed, failed[:1], "x")
    assert ("failed" in text, "again" in text) == (True, False)
    silent = measured((), (5.0,))
    assert "faster than" not in tuning_text(silent, silent, "x")

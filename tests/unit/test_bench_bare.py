"""What tests/bench/bench_bare.py makes of its figures, and how it starts the ranks on the host."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from devtools.trials.sandbox import RuncSandbox
from tests.bench import bench_bare
from tests.bench.bench_bare import HOST, LAYOUTS, NETWORKS, PODS, Measured
from tests.bench.report import replace_part, verdict

# Each process gets the same kind of memory.
TUNED = {f"GLIBC_TUNABLES={bench_bare.ENVIRONMENT['GLIBC_TUNABLES']}"}


def measured(ratio: float, noise: float = 0.0, accuracy: float = 0.97) -> Measured:
    """Three starts of ten turns in which the pods have a share of the host's speed."""
    draw = random.Random(1)  # noqa: S311
    figures = Measured(ranks=2)
    for network in NETWORKS:
        host = [0.5] * 10
        figures.seconds[network] = [
            {HOST: host, PODS: [0.5 / (ratio + draw.gauss(0, noise)) for _ in host]}
            for _ in range(3)
        ]
        figures.losses[network] = {HOST: [3.0, 2.0], PODS: [3.0, 2.0]}
    of_host: dict[str, Any] = {"accuracy": 0.97, "weights": "ab", "losses": []}
    figures.learnt = {HOST: of_host, PODS: {**of_host, "accuracy": accuracy}}
    return figures


def test_speeds_are_compared_within_a_turn() -> None:
    figures = Measured(ranks=1)
    figures.seconds["resnet50"] = [{HOST: [1.0, 3.0], PODS: [2.0, 3.0]}]
    assert figures.ratios("resnet50") == [0.75]
    assert figures.speed("resnet50", HOST) == NETWORKS["resnet50"][0] * 2 / 4.0
    figures.seconds["resnet50"].append({HOST: [1.0], PODS: [4.0]})
    assert figures.ratios("resnet50") == [0.75, 0.25], "one for each start"
    assert figures.speed("resnet50", HOST) == NETWORKS["resnet50"][0] * 3 / 5.0
    figures.seconds["resnet50"][0][PODS].append(1.0)
    with pytest.raises(ValueError, match="longer"):
        figures.ratios("resnet50")


def test_table_has_a_row_for_each_network_and_layout_with_a_verdict() -> None:
    lines = bench_bare.table({"one": measured(0.9996), "two": measured(0.99)}).splitlines()
    assert len(lines) == 2 + 2 * len(NETWORKS)
    assert lines[2] == "| ResNet-50 | one rank | 16.00 | 15.99 | 100.0% ± 0.0% | reached |"
    assert lines[5].startswith("| Inception-v3 | two ranks of one worker | 16.00 | 15.84 | 99.0%")
    assert lines[5].endswith("| missed |")
    unknown = bench_bare.table({"one": measured(0.998, noise=0.02)}).splitlines()[2]
    assert unknown.endswith("| within the interval |")


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([1.0, 1.002, 0.998], "within the interval"),
        ([1.0, 1.0001, 0.9999], "reached"),
        ([0.99, 0.9901, 0.9899], "missed"),
        # One figure says nothing.
        ([1.5], "within the interval"),
    ],
)
def test_verdict_is_as_sure_as_the_interval(figures: list[float], expected: str) -> None:
    assert verdict(figures, 0.998) == expected


def test_trainings_of_one_seed_are_compared_bit_by_bit() -> None:
    equal = measured(1.0)
    row = bench_bare.learnt_table({"two": equal}).splitlines()[-1]
    assert row == "| two ranks of one worker | 97.00% | 97.00% | equal, bit for bit | equal |"
    equal.learnt[PODS]["weights"] = "cd"
    equal.losses["inception3"][PODS] = [3.0, 2.25]
    row = bench_bare.learnt_table({"two": equal}).splitlines()[-1]
    assert row.endswith("| differ | differ by up to 0.25 |")


def test_other_accuracy_fails() -> None:
    bench_bare.check_accuracy({"one": measured(1.0, accuracy=0.9725)})
    with pytest.raises(SystemExit, match=r"one rank: the accuracies differ by 0\.40%"):
        bench_bare.check_accuracy({"one": measured(1.0, accuracy=0.966)})


def test_equal_losses_are_both_seen() -> None:
    drawn = bench_bare.picture(measured(1.0), LAYOUTS["two"])
    assert drawn.count('stroke-width="8" stroke-opacity="0.35"') == len(NETWORKS)
    assert drawn.count('stroke-width="2"') == len(NETWORKS)
    assert "ResNet-50, host" in drawn
    assert "Inception-v3, pods" in drawn


def test_ranks_on_the_host_run_in_the_images_files_as_its_user(tmp_path: Path) -> None:
    image: Any = SimpleNamespace(engine=SimpleNamespace(program="buildah"))
    config = {"Env": ["PATH=/usr/bin", "A=b c"]}
    inside = RuncSandbox(image, tmp_path / "output", tmp_path / "root", config, tmp_path)
    line = bench_bare.host_line(inside, LAYOUTS["network"])
    assert line[:4] == ["unshare", "--mount", "sh", "-c"]
    words = line[line.index("sh", 4) + 1 :]
    assert words[:3] == [str(tmp_path / "root"), str(tmp_path / "output"), "1000:1000"]
    # Nothing of this machine's environment.
    assert words[3:5] == ["env", "--ignore-environment"]
    assert {"A=b c", *TUNED, "OMP_NUM_THREADS=1", "OMPI_MCA_btl=self,tcp", "HOME=/tmp"} <= set(
        words
    )
    launch = words[words.index("mpirun") :]
    assert launch[:3] == ["mpirun", "-np", "2"]
    assert launch[launch.index("python3") + 3] == HOST


def test_pods_have_the_same_settings_as_the_host() -> None:
    for layout in LAYOUTS.values():
        chart = bench_bare.pods(cast(Any, None), layout)
        worker = chart.values["worker"]
        assert worker["number"] * worker["slots"] == layout.ranks
        env = {entry["name"]: entry["value"] for entry in worker["env"]}
        assert env == bench_bare.ENVIRONMENT


def test_more_starts_than_turns_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench_bare", "--turns", "4", "--starts", "5"])
    with pytest.raises(SystemExit):
        bench_bare.main()
    assert "--starts must be at least 1 and at most --turns" in capsys.readouterr().err


def test_unknown_layout_is_refused() -> None:
    assert list(bench_bare.choose("two,one")) == ["two", "one"]
    for wrong in ("", "three"):
        with pytest.raises(SystemExit, match="use one, two, network"):
            bench_bare.choose(wrong)


def test_page_without_the_part_is_refused() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n"
    expected = "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb\n"
    assert replace_part(page, "x", "new") == expected
    with pytest.raises(ValueError, match="no part between <!-- y: begin -->"):
        replace_part(page, "y", "new")

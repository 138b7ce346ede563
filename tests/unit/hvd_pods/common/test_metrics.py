"""The metrics of masters and workers, over real sockets."""

from __future__ import annotations

import itertools
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from hvd_pods.common import metrics
from tests.unit.hvd_pods.copies import FILES
from tests.unit.hvd_pods.runs import make_run as run

PAGE = FILES.parents[2] / "docs" / "chart-watching.md"
# In the module's own table, a row of the page each.
SERVED = PAGE.read_text().partition("## Scrape metrics")[2]
DOCUMENTED = set(re.findall(r"^\| `(horovod_\w+)", SERVED, re.MULTILINE))


def served(page: str) -> list[str]:
    """The names of the metrics of a page, each of which must be in one group."""
    names = [line.partition(" ")[0].partition("{")[0] for line in page.splitlines()]
    groups = [name for name, _ in itertools.groupby(name for name in names if name != "#")]
    assert len(groups) == len(set(groups)), groups
    return groups


def test_every_metric_is_documented_and_described(tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    master = served(metrics.master_page(run(), "Failed", 0, 0, 0, tmp_path / "0"))
    worker = served(metrics.worker_page("2", tmp_path))
    assert {*master, *worker} == set(metrics.METRICS) == DOCUMENTED


def test_a_worker_serves_the_metrics_of_its_ranks_by_rank(tmp_path: Path) -> None:
    (tmp_path / "1").write_text('horovod_step 9\nloss{of="the train"} 0.5\nhorovod_ranks 3\n')
    (tmp_path / "0").write_text('horovod_step 8\nloss{rank="mine"} NaN\n')
    (tmp_path / ".1").write_text("half a")
    os.utime(tmp_path / "1", (time.time() - 300, time.time() - 300))
    # A file server's clock is ahead.
    (tmp_path / "2").touch()
    os.utime(tmp_path / "2", (time.time() + 300, time.time() + 300))
    lines = metrics.worker_page("2", tmp_path).splitlines()
    assert [line for line in lines if line.startswith(("horovod_step", "loss"))] == [
        'horovod_step{rank="0"} 8',
        'horovod_step{rank="1"} 9',
        'loss{rank="mine"} NaN',
        'loss{rank="1",of="the train"} 0.5',
    ]
    assert 'horovod_script_lines_refused{rank="1"} 1' in lines, "that is a metric of the master"
    ages = {
        line.partition(" ")[0]: float(line.partition(" ")[2])
        for line in lines
        if "_age" in line[:30] and line[0] != "#"
    }
    assert ages['horovod_script_age_seconds{rank="1"}'] >= 300 > 60
    assert ages['horovod_script_age_seconds{rank="0"}'] < 60
    assert ages['horovod_script_age_seconds{rank="2"}'] == 0
    assert ".1" not in "".join(lines).replace("0.1", "")


@pytest.mark.parametrize(
    ("line", "is_sample"),
    [
        ("horovod_images_per_second 512.3", True),
        ('loss{a="b",c="d"} -1.5e-07', True),
        ("loss nan", True),
        ("loss -inf", True),
        ("loss .5", True),
        ("loss 1.2.3", False),
        ("loss", False),
        ("3 loss", False),
        ('loss{a="b"', False),
    ],
)
def test_what_a_script_may_add(line: str, is_sample: bool) -> None:
    expected: tuple[list[str], int] = ([line], 0) if is_sample else ([], 1)
    assert metrics.parse_samples(f"# comment\n\n{line}\n") == expected


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_both_ip_families_are_answered(host: str) -> None:
    server = metrics.serve(lambda: "horovod_ranks 4\n", 0)
    with urllib.request.urlopen(f"http://{host}:{server.server_port}/metrics") as answer:
        assert answer.read() == b"horovod_ranks 4\n"
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    server.shutdown()


def test_a_port_in_use_does_not_end_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    server = metrics.serve(str, 0)
    environment = {"HVD_METRICS_PORT": str(server.server_port), "HVD_METRICS_FILE": ""}
    metrics.start(run(), str, int, int, int, environment)
    assert f"cannot serve metrics on port {server.server_port}" in capsys.readouterr().out
    of_worker = {"HVD_SLOTS": "1", "HVD_METRICS_DIR": "/tmp", **environment}
    assert metrics.main(of_worker) == 1
    assert f"cannot serve metrics on port {server.server_port}" in capsys.readouterr().out
    server.shutdown()


def test_the_master_serves_the_file_that_the_chart_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics").write_text("horovod_step 7\n")
    pages: list[str] = []
    monkeypatch.setattr(metrics, "serve", lambda text, port: pages.append(f"{port}\n{text()}"))
    environment = {"HVD_METRICS_PORT": "9464", "HVD_METRICS_FILE": str(tmp_path / "metrics")}
    metrics.start(run(), lambda: "Training", lambda: 2, lambda: 3, lambda: 4, environment)
    (page,) = pages
    lines = page.splitlines()
    assert lines[0] == "9464"
    assert 'horovod_stage{stage="Training"} 1' in lines
    expected = ["horovod_hosts_ready 2", "horovod_launches_total 3", "horovod_stalls_total 4"]
    assert [line for line in lines if line in expected] == expected
    assert {"horovod_step 7", "horovod_script_lines_refused 0"} <= {*lines}

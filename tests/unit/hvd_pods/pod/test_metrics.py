"""The metrics of masters and workers, of scripts that may write anything, over real sockets."""

from __future__ import annotations

import itertools
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.common.repository import DOCS
from hvd_pods.master import serve_metrics as master
from hvd_pods.pod import metrics
from hvd_pods.pod.metrics import Sample
from hvd_pods.pod.threads import start_thread
from hvd_pods.shared import untrusted
from hvd_pods.worker import main as worker
from hvd_pods.worker.gpus import NvmlReader
from tests.support.fakes.nvml import FakeGpu, FakeNvml
from tests.support.ports import find_port
from tests.support.world import World, one_group

# What scripts may report and what pods serve: a row of a table each.
METRIC = re.compile(r"^\| `(hvdchart_\w+)", re.MULTILINE)
REPORTED = set(METRIC.findall((DOCS / "watching.md").read_text()))
DOCUMENTED = set(METRIC.findall((DOCS / "monitoring.md").read_text()))
STATE = World(one_group()).state


def served(page: str) -> list[str]:
    """The names of the metrics of a page, each of which must be in one group."""
    names = [line.partition(" ")[0].partition("{")[0] for line in page.splitlines()]
    groups = [name for name, _ in itertools.groupby(name for name in names if name != "#")]
    assert len(groups) == len(set(groups)), groups
    return groups


def write_for_each(folder: Path, ranks: Iterable[int], text: str) -> None:
    for rank in ranks:
        (folder / str(rank)).write_text(text)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Where a master serves its metrics."""
    port = find_port()
    monkeypatch.setenv("HVD_METRICS_PORT", str(port))
    metrics.start(lambda: master.make_page(STATE))
    return port


def scrape(port: int, host: str = "127.0.0.1", body: bytes | None = None) -> str:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", body) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def test_every_metric_is_documented_and_described(tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    of_gpus = NvmlReader(FakeNvml(FakeGpu())).read()
    pages = master.make_page(STATE), worker.make_page("2", tmp_path, of_gpus)
    assert {*served(pages[0]), *served(pages[1])} == set(metrics.METRICS) == DOCUMENTED
    assert metrics.PROGRESS.keys() == REPORTED


def test_a_worker_serves_the_metrics_of_its_ranks_by_rank(tmp_path: Path) -> None:
    (tmp_path / "1").write_text('hvdchart_step 9\nloss{of="the train"} 0.5\n')
    (tmp_path / "0").write_text('hvdchart_step 8\nloss{rank="mine"} NaN\n')
    lines = worker.make_page("2", tmp_path).splitlines()
    assert [line for line in lines if line.startswith(("hvdchart_step", "loss"))] == [
        'hvdchart_step{rank="0"} 8',
        'hvdchart_step{rank="1"} 9',
        'loss{rank="0"} NaN',
        'loss{of="the train",rank="1"} 0.5',
    ]


def test_a_rank_cannot_write_a_metric_of_the_master(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("hvdchart_step 9\nhvdchart_ranks 3\n")
    page = worker.make_page("2", tmp_path)
    assert "hvdchart_ranks" not in page
    assert 'hvdchart_script_lines_refused{rank="1"} 1' in page.splitlines()


def test_a_file_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    """It has another name until it is complete."""
    (tmp_path / ".1").write_text("hvdchart_step 9\n")
    assert 'rank="' not in worker.make_page("2", tmp_path)


@pytest.mark.parametrize(("written", "least", "most"), [(-300, 300, 360), (0, 0, 60), (300, 0, 0)])
def test_the_age_of_a_ranks_file_is_served(
    tmp_path: Path, written: int, least: float, most: float
) -> None:
    """It is 0 where the clock of a file server is ahead."""
    file = tmp_path / "1"
    file.touch()
    os.utime(file, (time.time() + written, time.time() + written))
    page = worker.make_page("2", tmp_path)
    (age,) = re.findall(r'^hvdchart_script_age_seconds\{rank="1"\} (.*)$', page, re.M)
    assert least <= float(age) <= most


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        ("hvdchart_samples_per_second 512.3", Sample("hvdchart_samples_per_second", "512.3")),
        ('l{a="b", c="d\\"}",}  -1.5e-07', Sample("l", "-1.5e-07", ('a="b"', 'c="d\\"}"'))),
        ('l{c="", a="b"} 5.', Sample("l", "5.", ('a="b"', 'c=""'))),
        ("l{} nan", Sample("l", "nan")),
        ("l\t-inf", Sample("l", "-inf")),
        ("l .5", Sample("l", ".5")),
        ("l 1.2.3", None),
        ("l", None),
        ("3 l", None),
        ("l ٣", None),
        # A page with one of these is refused as a whole.
        ('l{a="b" 1', None),
        ("l{a=b} 1", None),
        ('l{a="b\\x"} 1', None),
        ('l{a="1",a="2"} 1', None),
        ('l{__name__="hvdchart_stage"} 1', None),
        ("l -nan", None),
        ("l 1e999", None),
        (f"l{{{','.join(f'a{n}=' + repr('1') for n in range(17))}}} 1".replace("'", '"'), None),
        (f'l{{{"a" * 101}="1"}} 1', None),
        (f'l{{a="{"1" * 401}"}} 1', None),
        # The master's thread was busy for 69 seconds.
        (f"l {'1' * 40_000}x", None),
        ("l" * 5000 + " 1", None),
    ],
)
def test_what_a_script_may_add(line: str, sample: Sample | None) -> None:
    expected = ([sample], 0) if sample else ([], 1)
    assert metrics.parse_samples(f"# comment\n\n{line}\n") == expected


@pytest.mark.fuzz
@given(st.text(alphabet='ab_{}="\\,\n 01.eE+-#nNiIfF\u2028é') | st.text())
@pytest.mark.promise("page with any text of a script is one that is read again")
def test_page_with_any_text_of_a_script_is_one_that_is_read_again(text: str) -> None:
    samples, refused = metrics.parse_samples(text)
    page = metrics.format_page([sample.with_label('rank="0"') for sample in samples])
    again, none = metrics.parse_samples(page)
    assert none == 0 <= refused
    assert {(name, labels) for name, _, labels in again} == {
        (sample.name, sample.with_label('rank="0"').labels) for sample in samples
    }
    assert len(again) == len({(name, labels) for name, _, labels in again})
    assert len(metrics.parse_progress(metrics.select_progress(text))) <= len(metrics.PROGRESS)


@pytest.mark.promise("files that are none are left out")
def test_files_that_are_none_are_left_out(tmp_path: Path) -> None:
    """A FIFO would keep the server waiting, and a link show what only the pod may read."""
    os.mkfifo(tmp_path / "0")
    (tmp_path / "1").mkdir()
    (tmp_path / "secret").write_text("secret 1")
    (tmp_path / "2").symlink_to(tmp_path / "secret")
    (tmp_path / "3").write_text("hvdchart_step 3")
    lines = worker.make_page("2", tmp_path).splitlines()
    found = [line for line in lines if line.startswith(("hvdchart_step", "secret"))]
    assert found == ['hvdchart_step{rank="3"} 3', 'secret{rank="secret"} 1']


def test_files_with_hard_links_are_left_out(tmp_path: Path) -> None:
    """One file of 1 MiB was served 256 times."""
    (tmp_path / "0").write_text("own 1")
    (tmp_path / "1").hardlink_to(tmp_path / "0")
    assert "own" not in worker.make_page("2", tmp_path)


@pytest.mark.parametrize("ranks", [1, 8, 256, 400])
def test_a_page_has_a_limit_of_which_each_rank_has_a_share(tmp_path: Path, ranks: int) -> None:
    text = "".join(f"own_{number} 1\n" for number in range(2000))
    write_for_each(tmp_path, range(ranks), f"hvdchart_step 9\n{text}")
    lines = [
        line for line in worker.make_page("2", tmp_path).splitlines() if not line.startswith("#")
    ]
    written = [line for line in lines if line.startswith(("own", "hvdchart_step"))]
    served = min(ranks, worker.MAX_RANK_FILES)
    assert metrics.MAX_SERIES - served < len(written) <= metrics.MAX_SERIES
    assert sum(line.startswith("hvdchart_step") for line in written) == served
    assert len(lines) < 2000, "sampleLimit of the PodMonitor"
    assert f'hvdchart_script_lines_refused{{rank="0"}} {2001 - len(written) // served}' in lines


def test_line_that_the_limit_cuts_is_left_out(tmp_path: Path) -> None:
    line = "loss 1234567\n"
    (tmp_path / "0").write_text(line * (untrusted.MAX_FILE_BYTES // len(line) + 1))
    assert metrics.read_script_file(tmp_path / "0").endswith(line)


def test_master_serves_its_state(port: int) -> None:
    page = scrape(port)
    assert page == scrape(port, "[::1]") == master.make_page(STATE)
    lines = page.splitlines()
    assert 'hvdchart_stage{stage="Starting"} 1' in lines
    assert "hvdchart_workers_ready 0" in lines


def test_only_reads_are_answered_with_metrics(port: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match="405"):
        scrape(port, body=b"")


def test_page_is_served_again_for_longer_than_it_took() -> None:
    """However often anybody asks, most of the time is left for the loop of the master."""
    pages = itertools.count()
    server = metrics.make_server(lambda: f"page {next(pages)}", 0, reuse_factor=1e9)
    start_thread("serve", server.serve)
    assert scrape(server.port) == scrape(server.port) == "page 0"


def test_a_port_in_use_does_not_end_the_run(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    metrics.start(lambda: master.make_page(STATE))
    assert f" port {port}" in capsys.readouterr().out

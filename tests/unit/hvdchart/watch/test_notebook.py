"""The view in a notebook, in the shell that notebooks run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.kubectl import Kubectl
from hvdchart.watch.notebook import Widget, beside_call, is_notebook
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.watch import sample
from tests.unit.hvdchart.watch.browser import document_of, main_of, needs_browser

pytestmark = pytest.mark.timeout(120)
# The view is shown at once, and after each change.
show_beside = partial(beside_call, first_view_delay_seconds=0.0, view_interval_seconds=0.0)
BEGINNINGS = "[hvd] rank 0 of 2 on hvd-worker-0, CPUs 0\n[1,1]<stdout>:[hvd] rank 1 of 2 on x\n"


class _Display:
    """What the kernel sends to the notebook: the HTML of each display and update."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.changed = threading.Condition()

    def publish(self, data: dict[str, Any], **more: Any) -> None:
        with self.changed:
            identity = more["transient"]["display_id"]
            self.shown.append((identity, data["text/html"]))
            self.changed.notify_all()

    def wait_for(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.shown) >= number, 60)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Display]:
    """This process is the kernel of a notebook."""
    display = _Display()
    shell = InteractiveShell.instance()
    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    monkeypatch.setattr(shell.display_pub, "publish", display.publish)
    yield display
    InteractiveShell.clear_instance()


def test_outside_of_a_notebook_the_output_is_written_as_it_is(fake_cluster: FakeCluster) -> None:
    written: list[str] = []
    cluster = Cluster.connect()
    with beside_call(cluster, "hvd", Kubectl("team"), written.append) as write:
        write(BEGINNINGS)
    assert "".join(written) == BEGINNINGS


def test_a_terminal_is_no_notebook() -> None:
    InteractiveShell.instance()
    assert "IPython" in sys.modules
    assert not is_notebook()
    InteractiveShell.clear_instance()


def test_a_call_in_a_notebook_shows_the_run_in_one_place(
    kernel: _Display, running: FakeCluster
) -> None:
    written: list[str] = []
    with show_beside(Cluster.connect(), "hvd", Kubectl("team"), written.append) as write:
        write(f"{BEGINNINGS}loss")
        write(" 0.5\n[")
        write("1] done")
        kernel.wait_for(2)
    assert "".join(written) == "loss 0.5\n[1] done"
    assert len({identity for identity, _ in kernel.shown}) == 1
    assert all('sandbox="allow-scripts"' in html for _, html in kernel.shown)
    assert all("hvd-worker-1" in html for _, html in kernel.shown)


def test_progress_bar_of_a_rank_is_seen_before_its_line_ends(
    kernel: _Display, running: FakeCluster
) -> None:
    written: list[str] = []
    with show_beside(Cluster.connect(), "hvd", Kubectl("team"), written.append) as write:
        write("[0] 10 %\r")
        assert written == ["[0] 10 %\r"]


def test_a_view_that_cannot_be_had_ends_no_call(
    kernel: _Display, fake_cluster: FakeCluster
) -> None:
    with show_beside(Cluster.connect(), "none", Kubectl("team"), print) as write:
        write("x")
    # The view of an earlier test may still come.
    assert not any("run none" in html for _, html in kernel.shown)


@needs_browser
@pytest.mark.slow
def test_a_browser_draws_the_widget(tmp_path: Path) -> None:
    file = tmp_path / "cell.html"
    frame = Widget(sample.training_view())._repr_html_()
    # A browser shows the documents of frames as pictures only: this is what the frame has.
    file.write_text(frame.partition('srcdoc="')[2].rpartition('"')[0].replace("&lt;", "<"))
    text = file.read_text()
    for entity, character in (("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    file.write_text(text)
    shown = document_of(file.as_uri(), tmp_path / "profile")
    assert '<body class="widget">' in shown
    assert "Step 3,140 of 5,000" in main_of(shown)

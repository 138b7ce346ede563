"""The page of a run: its server, and what a real browser makes of it."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hvdchart.watch.page import Section, write_page
from hvdchart.watch.page_server import PageServer, serve_page
from hvdchart.watch.view_model import View
from tests.unit.hvdchart.watch import sample
from tests.unit.hvdchart.watch.browser import document_of, main_of, needs_browser

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>{data}"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with serve_page(sample.training_view()) as made:
        yield made


def ask(
    server: PageServer, path: str = "", host: str = "", method: str = "GET"
) -> http.client.HTTPResponse:
    """Ask for a path below the token, as a host; by default as a browser does."""
    address = urlsplit(server.address)
    assert address.hostname
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    connection.putrequest(method, path or address.path, skip_host=True)
    if host != "none":
        connection.putheader("Host", host or f"{address.hostname}:{address.port}")
    connection.endheaders()
    return connection.getresponse()


def test_the_page_is_served_with_a_policy_that_loads_nothing(server: PageServer) -> None:
    answer = ask(server)
    assert answer.status == 200
    assert "hvd-worker-1" in answer.read().decode()
    policy = str(answer.headers["Content-Security-Policy"])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["/", "/events", "/wrong/", "/wrong/events", "//", "/{}/more"])
@pytest.mark.promise("who does not know the token gets nothing")
def test_who_does_not_know_the_token_gets_nothing(server: PageServer, path: str) -> None:
    token = urlsplit(server.address).path.strip("/")
    answer = ask(server, path.format(token))
    assert answer.status == 404
    assert "hvd-worker" not in answer.read().decode()


@pytest.mark.parametrize("host", ["none", "evil.example", "127.0.0.1", "127.0.0.1:1", "[::1]:{}"])
@pytest.mark.promise("a page of another site cannot give this server its name")
def test_a_page_of_another_site_cannot_give_this_server_its_name(
    server: PageServer, host: str
) -> None:
    """DNS rebinding: the browser sends the name of that site, and its page could read ours."""
    assert ask(server, host=host.format(urlsplit(server.address).port)).status == 403


def test_nothing_can_be_changed(server: PageServer) -> None:
    assert ask(server, method="POST").status == 501


def test_each_server_has_a_token_of_its_own(server: PageServer) -> None:
    with serve_page(sample.training_view()) as other_server:
        token = urlsplit(other_server.address).path
        assert len(token) > 30
        assert token != urlsplit(server.address).path


def test_each_view_is_an_event(server: PageServer) -> None:
    answer = ask(server, urlsplit(server.address).path + "events")
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    states = []
    for view in (None, sample.finished_view()):
        if view:
            server.update(view)
        states.append(json.loads(answer.readline().removeprefix(b"data: "))["state"])
        answer.readline()
    assert states == ["running", "finished"]


class _Outside(HTMLParser):
    """What a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.tags.add(tag)
        self.found += [value for name, value in attrs if name in ("src", "href", "action")]


def test_the_page_loads_nothing_from_anywhere() -> None:
    text = write_page(sample.training_view())
    outside = _Outside()
    outside.feed(text)
    assert {"main", "script", "style"} <= outside.tags, "the page is empty"
    assert outside.found == []
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttp|innerHTML|\beval\b", text)


class _Noticed(View):
    """A view that notes when it is served."""

    served = threading.Event()

    def document(self) -> dict[str, Any]:
        self.served.set()
        return super().document()


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_browser_shows_the_run_and_follows_it(tmp_path: Path) -> None:
    first = _Noticed(**vars(sample.training_view()))
    ended = threading.Event()
    with serve_page(first) as server:

        def go_on() -> None:
            first.served.wait()
            while not ended.wait(0.2):
                server.update(sample.finished_view())

        threading.Thread(target=go_on, daemon=True).start()
        shown = document_of(server.address, tmp_path)
        ended.set()
    main = main_of(shown)
    assert "Step 5,000 of 5,000" in main, "the last view has come"
    assert '"state":"running"' in shown, "the page had another one first"
    assert 'class="curve"' in main
    assert "attempt 2: mpirun starts 4 ranks on 4 workers" in main


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_browser_shows_the_use_of_gpus(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(write_page(sample.gpus_view()))
    main = main_of(document_of(file.as_uri(), tmp_path / "profile"))
    assert "GPU memory" in main
    assert "62.0 Gi" in main


MEASURE = """<script>
const table = document.querySelector("table");
document.body.dataset.cut = table.offsetWidth > table.parentNode.getBoundingClientRect().width - 40;
</script>"""


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", [850, 1120])
def test_a_narrow_page_cuts_no_rank_off(tmp_path: Path, width: int) -> None:
    """850 pixels are those of a notebook."""
    file = tmp_path / "page.html"
    # The policy of the page admits no script but its own.
    text = re.sub(
        '<meta http-equiv="Content-Security-Policy"[^>]*>', "", write_page(sample.gpus_view())
    )
    file.write_text(text.replace("</body>", f"{MEASURE}</body>"))
    size = f"--window-size={width},900"
    shown = document_of(file.as_uri(), tmp_path / "profile", size)
    assert "62.0 Gi" in main_of(shown)
    assert 'data-cut="false"' in shown


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.promise("texts of a stranger stay texts in a browser")
def test_texts_of_a_stranger_stay_texts_in_a_browser(tmp_path: Path) -> None:
    view = sample.stalled_view()
    assert view.stall
    mark = replace(view.marks[-1], text=EVIL)
    stall = replace(view.stall, what=EVIL, place=EVIL)
    rows = (replace(view.rows[0], pod=EVIL, state=EVIL), *view.rows[1:])
    fields = {"reason": EVIL, "remedy": EVIL, "log": (EVIL,), "marks": (mark,), "rows": rows}
    evil = replace(view, name=EVIL, namespace=EVIL, stall=stall, **fields)  # type: ignore[arg-type]
    file = tmp_path / "page.html"
    file.write_text(write_page(evil, sections=[Section(EVIL, EVIL)]))
    shown = document_of(file.as_uri(), tmp_path / "profile")
    main = main_of(shown)
    assert not re.search(r"<(script|img)", main)
    assert main.count("&lt;/script&gt;") >= 10, "each text is shown as it is"
    assert "owned</title>" not in shown

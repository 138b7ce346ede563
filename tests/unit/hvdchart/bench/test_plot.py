"""The plot of a scaling measurement."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from hvdchart.bench.plot import plot
from hvdchart.bench.result import machine_text
from tests.unit.hvdchart.bench.test_scaling import result


def test_the_plot_has_a_point_with_its_interval_for_each_size() -> None:
    measured = result()
    picture = plot("a & b", machine_text(measured), measured["rows"])
    tree = ElementTree.fromstring(picture)  # noqa: S314
    assert tree.tag.endswith("svg")
    texts = [element.text for element in tree.iter() if element.tag.endswith("text")]
    assert "a & b" in texts
    assert "1 x (Fast <1>, 4 CPUs) on 2 nodes" in texts
    assert [text for text in texts if text and "%" in text] == ["10.5, 100%", "19.5, 93%"]
    circles = [element for element in tree.iter() if element.tag.endswith("circle")]
    assert float(circles[0].attrib["cx"]) < float(circles[1].attrib["cx"])
    assert float(circles[0].attrib["cy"]) > float(circles[1].attrib["cy"])


def row(workers: int, speed: float, half: float, efficiency: float) -> dict[str, Any]:
    return {
        "workers": workers, "ranks": 2 * workers, "imagesPerSecond": speed, "interval": half,
        "efficiency": efficiency,
    }  # fmt: skip


def drawn(*rows: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """The attributes of a plot's elements, by their tags; those of a text with its `text`."""
    elements: dict[str, list[dict[str, str]]] = {}
    for element in ElementTree.fromstring(plot("a", "b", rows)).iter():  # noqa: S314
        tag = element.tag.rpartition("}")[2]
        elements.setdefault(tag, []).append({**element.attrib, "text": element.text or ""})
    return elements


def test_the_plot_is_to_scale() -> None:
    """The axes end at the most workers, and 5 % above the highest interval."""
    elements = drawn(row(1, 10.0, 1.0, 1.0), row(2, 19.0, 2.0, 0.95))
    assert (elements["svg"][0]["width"], elements["svg"][0]["height"]) == ("720", "440")
    axes, *intervals = (each["d"] for each in elements["path"])
    assert axes == "M80 70V380H690"
    assert intervals == ["M385.0 253.5V225.4", "M690.0 141.0V84.8"]
    points = [(each["cx"], each["cy"]) for each in elements["circle"]]
    assert points == [("385.0", "239.4"), ("690.0", "112.9")]
    ideal, measured = (each["points"] for each in elements["polyline"])
    assert ideal == "80.0,380.0 385.0,239.4 690.0,98.8"
    assert measured == " ".join(map(",".join, points))


def test_ideal_line_of_the_plot_stays_below_its_top() -> None:
    ideal = drawn(row(1, 10.0, 1.0, 1.0), row(2, 15.0, 2.0, 0.75))["polyline"][0]["points"]
    # 5 % below the end of the axis at 70.
    assert ideal.endswith(" 690.0,84.8")


def test_texts_of_the_plot_stand_at_what_they_name() -> None:
    elements = drawn(row(1, 10.0, 1.0, 1.0), row(2, 19.0, 2.0, 0.95))
    assert {each["text"]: (each["x"], each["y"]) for each in elements["text"]} == {
        "a": ("10", "24"), "b": ("10", "44"), "workers": ("360.0", "428"), "images/s": ("80", "62"),
        "10.0, 100%": ("385.0", "261.4"), "1": ("385.0", "398"),
        "19.0, 95%": ("690.0", "134.9"), "2": ("690.0", "398"),
    }  # fmt: skip

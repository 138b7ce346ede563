"""Drawings of curves and of Horovod's timeline, as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 300, 60, 20, 40, 40
Curve = Sequence[tuple[float, float]]


def svg(height: float, parts: Iterable[str]) -> str:
    """A complete picture."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
            ' font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def curves(title: str, below: str, lines: Mapping[str, Curve], *, pairs: bool = False) -> str:
    """Curves of figures from 0 on, over the same axis, whose name is `below`.

    With `pairs`, every second line has the colour of the one before, which is wide and pale: both
    are seen where they are equal.
    """
    points = [point for line in lines.values() for point in line]
    last, highest = max(x for x, _ in points), max(1.0, *(y for _, y in points))
    across = (WIDTH - LEFT - RIGHT) / last
    upwards = (HEIGHT - TOP - BOTTOM) / highest
    floor = HEIGHT - BOTTOM
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for part in range(5):
        x, y = last * part / 4, highest * part / 4
        parts += [
            f'<path d="M{LEFT} {floor - upwards * y:.1f}H{WIDTH - RIGHT}" stroke="#e2e8f0"/>',
            f'<text x="{LEFT - 6}" y="{floor - upwards * y + 4:.1f}" text-anchor="end">{y:.2f}'
            "</text>",
            f'<text x="{LEFT + across * x:.1f}" y="{floor + 16}" text-anchor="middle">{x:.0f}'
            "</text>",
        ]
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(below)}</text>'
    )
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[(number // 2 if pairs else number) % len(COLOURS)]
        below_it = pairs and number % 2 == 0
        stroke = 'stroke-width="8" stroke-opacity="0.35"' if below_it else 'stroke-width="2"'
        path = "L".join(f"{LEFT + across * x:.1f} {floor - upwards * y:.1f}" for x, y in line)
        parts += [
            f'<path d="M{path}" fill="none" stroke="{colour}" {stroke}/>',
            f'<text x="{LEFT + (190 if pairs else 150) * number}" y="34" fill="{colour}">'
            f"{escape(name)}</text>",
        ]
    return svg(HEIGHT, parts)


class Span(NamedTuple):
    """A part of the work on a tensor, in seconds since the start."""

    tensor: str
    activity: str
    begin: float
    end: float


# Activities of Horovod on CPUs, in the order in which a tensor goes through them.
ACTIVITIES = {
    "NEGOTIATE": ("waits until all ranks have it", "#cbd5e0"),
    "QUEUE": ("waits for its turn", "#ecc94b"),
    "WAIT": ("waits for its turn", "#ecc94b"),
    "MEMCPY": ("copied to or from the fusion buffer", "#2b6cb0"),
    "ALLREDUCE": ("allreduce", "#c53030"),
}
ROW, LABEL, AXIS = 11, 150, 46


def kind_of(activity: str) -> str | None:
    """The key of ACTIVITIES for a name in the timeline."""
    return next((kind for kind in ACTIVITIES if kind in activity), None)


def spans(events: Iterable[dict[str, Any]]) -> list[Span]:
    """The innermost activities of all tensors, from the events of hvdchart.run.timeline."""
    names: dict[Any, str] = {}
    begun: dict[Any, list[tuple[str, float]]] = {}
    innermost = []
    for event in events:
        tensor, phase = event.get("pid"), event.get("ph")
        if phase == "M" and event.get("name") == "process_name":
            names[tensor] = str(event.get("args", {}).get("name", ""))
        elif phase == "B":
            begun.setdefault(tensor, []).append((str(event["name"]), event["ts"] / 1e6))
        elif phase == "E" and begun.get(tensor):
            activity, begin = begun[tensor].pop()
            if kind_of(activity) and activity not in ("ALLREDUCE", "BROADCAST", "ALLGATHER"):
                innermost.append(Span(names.get(tensor, ""), activity, begin, event["ts"] / 1e6))
    return sorted(innermost, key=lambda span: span.begin)


def steps_of(all_spans: Sequence[Span], names: str) -> list[list[Span]]:
    """The spans of each step: for each tensor whose name matches, what leads to one allreduce, that
    and the copy after it.
    """
    steps: dict[int, list[Span]] = {}
    reached: dict[str, int] = {}
    reduced: set[str] = set()
    for span in all_spans:
        if not re.search(names, span.tensor):
            continue
        if span.tensor in reduced and not span.activity.startswith("MEMCPY_OUT"):
            reduced.remove(span.tensor)
            reached[span.tensor] += 1
        steps.setdefault(reached.setdefault(span.tensor, 0), []).append(span)
        if kind_of(span.activity) == "ALLREDUCE":
            reduced.add(span.tensor)
    return [steps[number] for number in sorted(steps)]


def short(tensor: str) -> str:
    """What tells a gradient of TensorFlow from the others, or the name's last part."""
    last = tensor.rpartition("/")[2]
    number = re.search(r"grads_(\d+)", last)
    # Keras names gradients after the layer, and after the operation that computes them.
    layer = re.search(r"_functional_\d+_(\w+?)(?:_\d+)?_(conv\w+_Conv2D|Reshape)", last)
    if layer:
        return f"{layer[1]} {'bias' if layer[2] == 'Reshape' else 'kernel'}"
    return f"gradient {number[1]}" if number else last


def timeline(title: str, step: Sequence[Span]) -> str:
    """A row for each tensor in the order in which the first rank has it."""
    begin, end = min(span.begin for span in step), max(span.end for span in step)
    across = (WIDTH - LABEL - RIGHT) / (end - begin)
    tensors = list(dict.fromkeys(span.tensor for span in step))
    floor = AXIS + ROW * len(tensors)
    parts = [f'<text x="10" y="18" font-weight="bold">{escape(title)}</text>']
    legend = dict.fromkeys(ACTIVITIES[kind] for s in step if (kind := kind_of(s.activity)))
    for number, (meaning, colour) in enumerate(legend):
        x = 10 + 220 * number
        parts += [
            f'<rect x="{x}" y="27" width="10" height="10" fill="{colour}"/>',
            f'<text x="{x + 15}" y="36">{escape(meaning)}</text>',
        ]
    for row, tensor in enumerate(tensors):
        y = AXIS + ROW * row
        parts.append(
            f'<text x="{LABEL - 6}" y="{y + 9}" text-anchor="end" font-size="9">'
            f"{escape(short(tensor))}</text>"
        )
        for span in (span for span in step if span.tensor == tensor):
            kind = kind_of(span.activity)
            if kind:
                parts.append(
                    f'<rect x="{LABEL + across * (span.begin - begin):.1f}" y="{y + 1}"'
                    f' width="{max(0.5, across * (span.end - span.begin)):.1f}"'
                    f' height="{ROW - 2}" fill="{ACTIVITIES[kind][1]}"/>'
                )
    for part in range(5):
        seconds = (end - begin) * part / 4
        parts.append(
            f'<text x="{LABEL + across * seconds:.1f}" y="{floor + 16}" text-anchor="middle">'
            f"{1000 * seconds:.0f} ms</text>"
        )
    return svg(floor + 26, parts)

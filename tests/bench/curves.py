"""Draws curves over the seconds of a measurement as an SVG picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 790
HEIGHT = 380
LEFT = 56
BELOW = 40
LEGEND = 280
# These are told apart by people with any colour vision (Okabe and Ito), then by dashes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def draw_curves(title: str, axis: str, curves: Mapping[str, Sequence[float]]) -> str:
    """A picture of curves that have a value for each second, the largest ones first in the legend.

    title: for people who do not see the picture. axis: what the values are.
    """
    seconds = max(1, *(len(curve) - 1 for curve in curves.values()))
    highest = max(1.0, *(max(curve) for curve in curves.values()))
    across = WIDTH - LEFT - LEGEND
    up = HEIGHT - BELOW - 24

    def x(second: float) -> float:
        return LEFT + across * second / seconds

    def y(value: float) -> float:
        return 16 + up * (1 - value / highest)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = highest * share
        second = seconds * share
        parts.append(
            f'<path d="M{LEFT} {y(value):.0f}H{LEFT + across}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value:.0f}</text>'
            f'<text x="{x(second):.0f}" y="{HEIGHT - 24}" text-anchor="middle">'
            f"{second:.0f} s</text>"
        )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">{escape(axis)}</text>')
    order = sorted(curves, key=lambda name: -curves[name][-1])
    for number, name in enumerate(order):
        points = " ".join(f"{x(at):.0f},{y(value):.0f}" for at, value in enumerate(curves[name]))
        dash = ' stroke-dasharray="5 3"' if number >= len(COLOURS) else ""
        look = f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2" fill="none"{dash}'
        line = 24 + 18 * number
        parts.append(
            f'<polyline points="{points}" {look}/>'
            f'<path d="M{WIDTH - LEGEND + 12} {line}h20" {look}/>'
            f'<text x="{WIDTH - LEGEND + 38}" y="{line + 4}">{escape(name)}</text>'
        )
    return "".join([*parts, "</svg>\n"])

"""Draws a scaling measurement: the speed over the number of workers, beside the ideal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hvdchart.run.release import Object

# In pixels: the picture, and its margins left, right, top and bottom.
WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 70, 60
_COLOUR = "#2b6cb0"


def plot(title: str, about: str, rows: Sequence[Object]) -> str:
    """An SVG with a point, its 95 % interval and its efficiency for each row of a result."""
    most = float(max(row["workers"] for row in rows))
    per_rank = rows[0]["imagesPerSecond"] / rows[0]["ranks"]
    ideal = [(row["workers"], per_rank * row["ranks"]) for row in rows]
    speeds = [row["imagesPerSecond"] + row["interval"] for row in rows]
    highest: float = 1.05 * max(*speeds, *(speed for _, speed in ideal))

    def x(workers: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * workers / most

    def y(speed: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * speed / highest

    def line(points: Sequence[tuple[float, float]], style: str) -> str:
        joined = " ".join(f"{x(workers):.1f},{y(speed):.1f}" for workers, speed in points)
        return f'<polyline points="{joined}" fill="none" {style}/>'

    measured = [(row["workers"], row["imagesPerSecond"]) for row in rows]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="10" y="24" font-weight="bold">{escape(title)}</text>',
        f'<text x="10" y="44" fill="#555">{escape(about)}</text>',
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="black" fill="none"/>',
        line([(0, 0), *ideal], 'stroke="#a0aec0" stroke-dasharray="5 4"'),
        line(measured, f'stroke="{_COLOUR}" stroke-width="2"'),
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">workers</text>',
        f'<text x="{LEFT}" y="{TOP - 8}" text-anchor="middle">images/s</text>',
    ]
    for row in rows:
        centre, speed, half = x(row["workers"]), row["imagesPerSecond"], row["interval"]
        parts += [
            f'<path d="M{centre:.1f} {y(speed - half):.1f}V{y(speed + half):.1f}" stroke="black"/>',
            f'<circle cx="{centre:.1f}" cy="{y(speed):.1f}" r="4" fill="{_COLOUR}"/>',
            f'<text x="{centre:.1f}" y="{y(speed) + 22:.1f}" text-anchor="end">'
            f"{speed:.1f}, {row['efficiency']:.0%}</text>",
            f'<text x="{centre:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{row['workers']}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])

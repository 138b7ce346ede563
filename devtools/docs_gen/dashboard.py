"""Write the dashboard for Grafana: charts/horovod/files/dashboard.json.

`ROWS` is the place where a person edits it. A query may name only metrics of
`hvd_pods/pod/metrics.py`, or of other exporters.
"""

from __future__ import annotations

import json
import re
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devtools.common.repository import CHART
from hvd_pods.pod.metrics import METRICS, PROGRESS

FILE = CHART / "files" / "dashboard.json"
# The grid of Grafana: columns of a row, and units of height.
COLUMNS = 24
FIGURE_HEIGHT = 4
GRAPH_HEIGHT = 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Labels of the metrics of the run that is shown, and of those of its ranks.
RUN = 'namespace="$namespace", release="$release"'
RANKS = f'{RUN}, rank!=""'
# The reported step, or the counted one of a run that reports none.
STEP = (
    "(hvdchart_step{{{labels}}} or hvdchart_counted_step{{{labels}}}"
    " unless on(namespace, release) hvdchart_step)"
).format
STEPS = f"max(hvdchart_steps{{{RUN}}})"
SPEED = f"hvdchart_samples_per_second{{{RANKS}}}"
# The exporter's own pod and namespace are `pod` and `namespace`, unless Prometheus honors labels.
XID_ERRORS = (
    'label_replace(label_replace(DCGM_FI_DEV_XID_ERRORS, "pod", "$1", "exported_pod", "(.+)"),'
    ' "namespace", "$1", "exported_namespace", "(.+)")'
)
RANK = "rank {{rank}}"
GPU = "{{pod}} GPU {{gpu}}"


@dataclass(frozen=True)
class Panel:
    """A panel. `queries`: the expression of each legend. `limits`: the `min` and `max` of the axis.

    `unit` is one of Grafana's, such as `s` or `percentunit`.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    description: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)


# The panels of a row have the same width. The first row shows the last figures, the others graphs.
ROWS = (
    (
        Panel("Stage", {"{{stage}}": f"hvdchart_stage{{{RUN}}} == 1"}),
        Panel(
            "Steps made",
            {"": f"max({STEP(labels=RUN)}) / {STEPS}"},
            "percentunit",
            "Needs the steps of the whole training from the script.",
        ),
        Panel("Samples/s of all ranks", {"": f"sum({SPEED})"}),
        Panel("Workers that answer", {"": f"hvdchart_workers_ready{{{RUN}}}"}),
        Panel(
            "Launches",
            {"": f"hvdchart_launches_total{{{RUN}}}"},
            description="How often the ranks of this run were started: more than 1 means restarts.",
        ),
        Panel(
            "Lost to faults",
            {"": f"hvdchart_lost_seconds_total{{{RUN}}}"},
            "s",
            "Until an attempt came further than those before, steps made twice included.",
        ),
    ),
    (
        Panel(
            "Steps",
            {RANK: STEP(labels=RANKS), "all": STEPS},
            description="A line that falls is a restart.",
        ),
        Panel("Loss", {RANK: f"hvdchart_loss{{{RANKS}}}"}),
    ),
    (
        Panel("Samples/s of each rank", {RANK: SPEED}),
        Panel(
            "Pace of each rank",
            {RANK: f"{SPEED} / scalar(quantile(0.5, {SPEED}))"},
            "percentunit",
            "Samples/s as a share of the median: a rank far below 100 % is a straggler.",
        ),
    ),
    (
        Panel(
            "Steps behind the first rank",
            {RANK: f"scalar(max(hvdchart_step{{{RUN}}})) - hvdchart_step{{{RANKS}}}"},
            description="More than a few steps: a rank that hangs, or reports no more.",
        ),
        Panel(
            "Since the last report",
            {RANK: f"hvdchart_script_age_seconds{{{RANKS}}}"},
            "s",
            "Grows for all ranks when one of them stalls.",
        ),
    ),
    (
        Panel(
            "Restarts and stalls",
            {
                "launches": f"hvdchart_launches_total{{{RUN}}}",
                "stalls": f"hvdchart_stalls_total{{{RUN}}}",
            },
        ),
        Panel("Cost of faults", {"lost": f"hvdchart_lost_seconds_total{{{RUN}}}"}, "s"),
    ),
    (
        Panel(
            "Share of the time in training",
            {
                "training": f'avg_over_time(hvdchart_stage{{{RUN}, stage="Training"}}'
                "[$__rate_interval])"
            },
            "percentunit",
            limits={"min": 0, "max": 1},
        ),
        Panel(
            "Workers",
            {
                "workers that answer": f"hvdchart_workers_ready{{{RUN}}}",
                "workers with metrics": f"count(hvdchart_slots{{{RUN}}})",
                "ranks at the start": f"hvdchart_ranks{{{RUN}}}",
            },
            limits={"min": 0},
        ),
    ),
    (
        Panel(
            "GPU utilization",
            {GPU: f"hvdchart_gpu_utilization_ratio{{{RUN}}}"},
            "percentunit",
            limits={"min": 0, "max": 1},
        ),
        Panel("GPU memory in use", {GPU: f"hvdchart_gpu_memory_used_bytes{{{RUN}}}"}, "bytes"),
        Panel(
            "Last Xid error",
            {GPU: f"{XID_ERRORS} and on (namespace, pod) hvdchart_slots{{{RUN}}}"},
            "none",
            "From NVIDIA's dcgm-exporter, where the cluster has it. 0 is none; 79 is a GPU that "
            "has fallen off the bus.",
        ),
    ),
)
FIGURE = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "graphMode": "none",
    "colorMode": "value",
}
GRAPH = {
    "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
LINES = {"custom": {"lineWidth": 1, "fillOpacity": 0}}


def describe_variable(name: str, label: str, series: str) -> dict[str, Any]:
    """Return a choice of the dashboard, which offers the values that a label has in the series."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({series}, {name})", "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": False,
        "includeAll": False,
    }


def describe_panels() -> list[dict[str, Any]]:
    """Return the panels for Grafana, with their places."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        is_first = row is ROWS[0]
        width = COLUMNS // len(row)
        height = FIGURE_HEIGHT if is_first else GRAPH_HEIGHT
        for column, panel in enumerate(row):
            text_mode = "value" if "" in panel.queries else "name"
            described = {"description": panel.description} if panel.description else {}
            panels.append(
                {
                    "id": len(panels) + 1,
                    "title": panel.title,
                    **described,
                    "type": "stat" if is_first else "timeseries",
                    "gridPos": {"x": column * width, "y": top, "w": width, "h": height},
                    "datasource": SOURCE,
                    "fieldConfig": {
                        "defaults": {
                            "unit": panel.unit,
                            **({} if is_first else LINES),
                            **panel.limits,
                        },
                        "overrides": [],
                    },
                    "options": {**FIGURE, "textMode": text_mode} if is_first else GRAPH,
                    "targets": [
                        {
                            "refId": letter,
                            "datasource": SOURCE,
                            "expr": expression,
                            "legendFormat": legend,
                            **({"instant": True} if is_first else {}),
                        }
                        for letter, (legend, expression) in zip(
                            string.ascii_uppercase, panel.queries.items(), strict=False
                        )
                    ],
                }
            )
        top += height
    return panels


def generated_texts() -> dict[Path, str]:
    """Return the dashboard, a panel in each line. Exits when a query names an unknown metric."""
    board = {
        "title": "hvdchart runs",
        "uid": "hvdchart-runs",
        "tags": ["hvdchart"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                describe_variable("namespace", "Namespace", "hvdchart_ranks"),
                describe_variable("release", "Run", 'hvdchart_ranks{namespace="$namespace"}'),
            ]
        },
    }
    panels = ",\n".join(map(json.dumps, describe_panels()))
    text = f'{json.dumps(board)[:-1]}, "panels": [\n{panels}\n]}}\n'
    unknown = {*re.findall(r"hvdchart_\w+", text)} - {*METRICS, *PROGRESS}
    if unknown:
        sys.exit(
            f"{__file__}: no pod serves {', '.join(sorted(unknown))}: see hvd_pods/pod/metrics.py"
        )
    return {FILE: text}

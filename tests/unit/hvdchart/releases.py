"""Releases as Helm keeps them in the cluster."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from typing import Any

import yaml

from hvdchart.chart_files import chart_dir
from tests.fakes.cluster import FakeCluster


@functools.cache
def chart_text() -> str:
    """The chart as Helm stores it, the files in the order of their names."""
    folder = chart_dir()
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    left_out = ("ci/", "values.", "Chart.yaml", ".helmignore")
    files = [
        {"name": name, "data": base64.b64encode((folder / name).read_bytes()).decode()}
        for name in names
        if (folder / name).is_file() and not name.startswith(left_out) and "__pyc" not in name
    ]
    chart = {
        "metadata": yaml.safe_load((folder / "Chart.yaml").read_text()),
        "templates": [file for file in files if file["name"].startswith("templates/")],
        "files": [file for file in files if not file["name"].startswith("templates/")],
        "values": yaml.safe_load((folder / "values.yaml").read_text()),
        "schema": base64.b64encode((folder / "values.schema.json").read_bytes()).decode(),
    }
    return json.dumps(chart)


def store_release(cluster: FakeCluster, revision: int, content: dict[str, Any]) -> None:
    """Write a revision of the release `hvd` as Helm does; the chart is this one by default."""
    chart = content.get("chart") or json.loads(chart_text())
    text = json.dumps({"name": "hvd", **content, "chart": chart, "version": revision}).encode()
    data = base64.b64encode(base64.b64encode(gzip.compress(text, 1))).decode()
    labels = {"owner": "helm", "name": "hvd", "version": str(revision)}
    metadata = {"name": f"sh.helm.release.v1.hvd.v{revision}", "labels": labels}
    cluster.put("secrets", {"metadata": metadata, "data": {"release": data}})

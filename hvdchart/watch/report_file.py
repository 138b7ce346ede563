"""One file about a run, for a colleague or a bug report: the page, and its sources.

It contains no secrets that `masking` knows.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator

from hvdchart import __version__
from hvdchart.errors import HvdchartError
from hvdchart.run.follow.logs import created_at, has_log
from hvdchart.run.helm import Helm, release_values
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import present_run
from hvdchart.run.state.release import Release, component_of
from hvdchart.run.state.status_text import event_lines
from hvdchart.text import plain_line, yaml_text
from hvdchart.watch.from_run import build_view
from hvdchart.watch.masking import Masker
from hvdchart.watch.page import Section, write_page

# The number of last lines of a master's and of a worker's log, the maximum number of characters of
# a line, and the maximum number of pods whose logs a report has.
_REPORT_TAIL_LINES = {"master": 4000}
_OTHER_REPORT_TAIL_LINES = 400
_MAX_REPORT_LINE_CHARACTERS = 2000
_MAX_LOG_PODS = 40


def make_report(cluster: Cluster, name: str, helm: Helm) -> str:
    """Return a run's report as HTML. Raises NoRunError, and ClusterError for a refused request.

    If any part except the run itself cannot be read, the report shows the error in its place.
    """
    run = present_run(cluster, name)
    release = run.release
    masker = Masker()
    # Mask the values first: their secrets are then masked in each other text.
    values = _or_problem(lambda: _values(release, cluster, helm, masker))
    logs = list(_logs(cluster, release, masker))
    lines = [line for title, text in logs for line in text.split("\n") if "(master)" in title]
    now = time.time()
    view = build_view(run, cluster.namespace, now, lines=lines, mask=masker.text)
    sections = [Section(title, text) for title, text in logs if text]
    sections += [
        Section("Events", masker.text("\n".join(map(plain_line, event_lines(release.events))))),
        Section("Values of the release", values),
        Section("Record of the run", yaml_text(masker.document(dict(run.record)))),
        Section("Versions", yaml_text(_versions(cluster, release))),
    ]
    return write_page(view, sections=[section for section in sections if section.text])


def _values(release: Release, cluster: Cluster, helm: Helm, masker: Masker) -> str:
    return yaml_text(masker.document(release_values(release.name, cluster.namespace, helm)))


def _logs(cluster: Cluster, release: Release, masker: Masker) -> Iterator[tuple[str, str]]:
    """Yield a title and the log of each pod, the masters first."""
    pods = [pod for pod in release.pods if has_log(pod)]
    pods.sort(key=lambda pod: (component_of(pod) != "master", created_at(pod)))
    for pod in pods[:_MAX_LOG_PODS]:
        name = str(pod["metadata"]["name"])
        component = component_of(pod)
        tail = _REPORT_TAIL_LINES.get(component, _OTHER_REPORT_TAIL_LINES)

        def read(name: str = name, component: str = component, tail: int = tail) -> str:
            lines = masker.lines(map(plain_line, cluster.log(name, component, tail=tail)))
            return "\n".join(line[:_MAX_REPORT_LINE_CHARACTERS] for line in lines)

        yield f"Log of {name} ({component})", _or_problem(read)


def _versions(cluster: Cluster, release: Release) -> dict[str, str]:
    controllers = [*release.jobs, *release.stateful_sets]
    labels = [controller["metadata"].get("labels") or {} for controller in controllers]
    charts = [str(label["helm.sh/chart"]) for label in labels if "helm.sh/chart" in label]
    images = {
        str(container.get("image", ""))
        for pod in release.pods
        for container in pod["spec"].get("containers") or []
    }
    return {
        "hvdchart": __version__,
        "chart": charts[0] if charts else "unknown",
        "kubernetes": _or_problem(cluster.version),
        "python": platform.python_version(),
        "images": ", ".join(sorted(images - {""})) or "unknown",
    }


def _or_problem(read: Callable[[], str]) -> str:
    """Return the result of `read`, or why it could not be read."""
    try:
        return read()
    except HvdchartError as problem:
        return plain_line(f"cannot be read: {problem}")

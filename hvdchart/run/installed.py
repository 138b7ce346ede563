"""Whether a release already is what an upgrade would make of it, found out without Helm.

Helm takes more than a second also for an upgrade that changes nothing. All that is not certain
counts as a change, so that Helm decides.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

import yaml

from hvdchart.chart_files import chart_dir
from hvdchart.run.api import RefusedError
from hvdchart.run.cluster import Cluster
from hvdchart.run.kubeconfig import YAML_LOADER
from hvdchart.run.release import Object

# Where Helm keeps its releases unless HELM_DRIVER names another place.
_SECRETS = ("", "secret", "secrets")
# Files of the chart that Helm keeps apart from the others, or not at all.
_APART = {"Chart.yaml", "values.yaml", "values.schema.json", ".helmignore"}
# Only the Job of a run and its StatefulSets have this label (templates/_run.tpl).
_RUN = "horovod/run"
# What an upgrade keeps of these as the cluster has it (templates/job.yaml, statefulset.yaml).
_KEPT = {"template", "podFailurePolicy", "podReplacementPolicy", "replicas"}
# By which value of `cleanup` the workers of a run that has ended so are scaled to zero.
_CLEANED = {"Complete": ("OnSuccess", "Always"), "Failed": ("Always",)}


def unchanged_revision(cluster: Cluster, name: str, values: Mapping[str, Any]) -> int | None:
    """The revision of a release that an upgrade to these values would leave as it is; else None.

    It has these values and this chart, and the cluster has its objects as an upgrade would leave
    them. What somebody has deleted or changed is for Helm: to create, to restore or to refuse.
    """
    if os.environ.get("HELM_DRIVER", "").lower() not in _SECRETS:
        return None
    try:
        stored = cluster.helm_release(name)
        if stored is None:
            return None
        release = _decode(stored)
        if _is_asked_for(release, values) and _is_in_place(cluster, release["manifest"]):
            return int(release["version"])
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error, yaml.YAMLError):
        # Not as Helm 3 and 4 write it.
        return None
    except RefusedError:
        # Helm needs the same rights, and says which is missing.
        return None
    return None


def _decode(stored: Object) -> Any:
    """The release in one of Helm's Secrets, whose data Helm itself encodes once more."""
    text = base64.b64decode(stored["data"]["release"])
    return json.loads(gzip.decompress(base64.b64decode(text)))


def _is_asked_for(release: Any, values: Mapping[str, Any]) -> bool:
    """Whether a release was completed with these values and with the chart as it is here."""
    return (
        release["info"]["status"] == "deployed"
        and _text(release.get("config") or {}) == _text(values)
        and _is_this_chart(release["chart"])
    )


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _is_this_chart(chart: Any) -> bool:
    """Whether Helm would load the same chart again; the same version may have another content."""
    from pathspec import GitIgnoreSpec

    folder = chart_dir()
    known = {
        file["name"]: base64.b64decode(file["data"])
        for file in (*chart["templates"], *(chart.get("files") or ()))
    }
    ignored = GitIgnoreSpec.from_lines((folder / ".helmignore").read_text("utf-8").splitlines())
    here = {
        name: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not ignored.match_file(name := path.relative_to(folder).as_posix())
    }
    return (
        {name: data for name, data in known.items() if name not in _APART}
        == {name: data for name, data in here.items() if name not in _APART}
        and base64.b64decode(chart["schema"]) == here["values.schema.json"]
        and _text(chart["metadata"]) == _text(_parse(here["Chart.yaml"]))
        and _text(chart["values"]) == _text(_parse(here["values.yaml"]))
    )


def _parse(text: bytes) -> Any:
    return yaml.load(text, YAML_LOADER)  # noqa: S506 - a safe one


def _is_in_place(cluster: Cluster, manifest: str) -> bool:
    """Whether the cluster has the objects of a manifest as an upgrade would leave them."""
    pairs: list[tuple[Object, Object]] = []
    for wanted in filter(None, yaml.load_all(manifest, YAML_LOADER)):
        metadata = wanted["metadata"]
        if metadata.get("namespace", cluster.namespace) != cluster.namespace:
            return False
        if wanted["kind"] == "PodGroup":
            # Which one the chart renders depends on what the cluster serves now.
            return False
        present = cluster.find(wanted["apiVersion"], wanted["kind"], metadata["name"])
        if present is None or "deletionTimestamp" in present["metadata"]:
            return False
        pairs.append((wanted, present))
    jobs = [pair for pair in pairs if pair[0]["kind"] == "Job" and _is_of_run(pair[0])]
    if len(jobs) != 1:
        # It was removed after its end: the chart asks the record what to do.
        return False
    is_done = _has_no_workers(*jobs[0])
    return all(_is_left(wanted, present, is_done=is_done) for wanted, present in pairs)


def _is_of_run(item: Object) -> bool:
    return _RUN in (item["metadata"].get("labels") or {})


def _has_no_workers(wanted: Object, job: Object) -> bool:
    """Whether the chart renders no workers beside this Job, as `horovod.workersAreDone` says."""
    cleanup = (wanted["metadata"].get("annotations") or {}).get("horovod/cleanup")
    return bool(wanted["spec"].get("suspend")) or any(
        condition["status"] == "True" and cleanup in _CLEANED.get(condition["type"], ())
        for condition in (job.get("status") or {}).get("conditions") or ()
    )


def _is_left(wanted: Object, present: Object, *, is_done: bool) -> bool:
    """Whether an upgrade leaves this object of the manifest as the cluster has it."""
    if wanted["kind"] in ("Job", "StatefulSet") and _is_of_run(wanted):
        if wanted["kind"] == "StatefulSet" and (present["spec"]["replicas"] == 0) != is_done:
            return False
        spec = {key: value for key, value in wanted["spec"].items() if key not in _KEPT}
        wanted = {**wanted, "spec": spec}
    return _is_part(wanted, present)


def _is_part(wanted: Any, present: Any) -> bool:
    """Whether a value has all that is wanted of it; the API server adds fields to maps only."""
    if isinstance(wanted, dict):
        return isinstance(present, dict) and all(
            # The API server leaves out empty lists, but not empty maps: `{}` may select everything.
            (key in present and _is_part(value, present[key])) or value in (None, [])
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(wanted) == len(present)
            and all(map(_is_part, wanted, present))
        )
    # True is not 1.
    return type(wanted) is type(present) and bool(wanted == present)

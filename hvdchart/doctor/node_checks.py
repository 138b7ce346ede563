"""Whether the nodes have what the pods of a run use: images, GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hvdchart.chart_files import app_version, is_gpu
from hvdchart.doctor.findings import Finding
from hvdchart.doctor.needs import PodNeeds, Values
from hvdchart.doctor.node_capacity import admits_pod
from hvdchart.quantity import parse_quantity
from hvdchart.run.state.release import Object, lacks_image
from hvdchart.values.merge import merge_images, merged_groups


def examine_images(nodes: Sequence[Object], values: Values) -> Iterator[Finding]:
    """Check whether the nodes that admit a pod of the run have its image.

    The image may also be in a registry. A kubelet reports 50 images at most.
    """
    pods_by_image: dict[str, list[Values]] = {}
    for pod in (*merged_groups(values), values.get("master") or {}):
        image = merge_images(values.get("image"), pod.get("image"))
        pods_by_image.setdefault(_listed_name(image), []).append(pod)
    for reference, pods in pods_by_image.items():
        usable = [node for node in nodes if any(admits_pod(node, pod) for pod in pods)]
        yield _examine_image(usable, reference)


def _listed_name(image: Values) -> str:
    """Return the name under which a node lists an image: with its digest or its tag."""
    digest = image.get("digest")
    ending = f"@{digest}" if digest else f":{image.get('tag') or app_version()}"
    return f"{image.get('repository') or ''}{ending}"


def _examine_image(usable: Sequence[Object], reference: str) -> Finding:
    """Check whether the nodes that admit the pods of an image have it."""
    if not usable:
        text = f"no node that can be seen admits the run; it needs {reference}"
        return Finding("image", "unknown", text)
    missing = [node for node in usable if lacks_image(node, reference)]
    if not missing:
        return Finding("image", "ok", f"all nodes have {reference}")
    text = f"{len(missing)} of {len(usable)} nodes do not report {reference}"
    remedy = "its registry must have it, and admit the nodes"
    if "/" not in reference:
        remedy = "Docker Hub must have it; if not, push it to a registry and name that in "
        remedy += "`image.repository`, or load it into all nodes"
    return Finding("image", "unknown", text, remedy)


def examine_gpus(nodes: Sequence[Object], needs: Sequence[PodNeeds] | None) -> Iterator[Finding]:
    """Check whether enough nodes have the GPUs that a worker requests."""
    offered: dict[str, list[int]] = {}
    for node in nodes:
        for name, count in (node.get("status", {}).get("allocatable") or {}).items():
            if is_gpu(name) and int(parse_quantity(str(count))):
                offered.setdefault(name, []).append(int(parse_quantity(str(count))))
    wanted = [(pod, name, count) for pod in needs or [] for name, count in pod.gpus.items()]
    for pod, name, count in wanted:
        room = pod.number
        if count:
            room = sum(gpus // count for gpus in offered.get(name, []))
        text = (
            f"{pod.number} pods of {pod.name} need {count} {name} each; nodes have room for {room}"
        )
        if room >= pod.number:
            yield Finding("GPUs", "ok", text)
        else:
            remedy = "use fewer workers or GPUs, another resource, or install the device plugin"
            yield Finding("GPUs", "problem", text, remedy)
    if not wanted:
        counts = [f"{sum(gpus)} {name} on {len(gpus)} nodes" for name, gpus in offered.items()]
        yield Finding("GPUs", "ok", ", ".join(counts) or f"none on {len(nodes)} nodes")

"""The settings of a run for which its pods need a level of Pod Security. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvdchart.doctor.needs import Values
from hvdchart.doctor.pod_security import (
    LEVELS,
    NEWEST,
    SECURITY_CONTEXT,
    Path,
    Pod,
    find_violations,
)
from hvdchart.values.merge import merged_groups


@dataclass(frozen=True)
class _ReleasePod:
    """What Pod Security reads of a pod, and the key of the values above its own settings.

    The chart's container is the first one. `capabilities` are those that the group adds.
    """

    key: str
    template: Pod
    capabilities: Sequence[str] = ()

    def name_of(self, path: Path) -> str:
        """Return the setting for a field of the pod, as messages name it."""
        first, *rest = path
        below = ".".join(str(step) for step in rest if not isinstance(step, int))
        if first == "annotations":
            return f"the annotation {below}"
        if first == "hostNetwork":
            return "`hostNetwork`"
        if first == SECURITY_CONTEXT:
            return f"`podSecurityContext.{below}`"
        if not rest:
            return f"`{self.key}.podSpec.{first}`"
        index, *steps = rest
        item = self.template["spec"][first][index]
        if first == "volumes":
            return f"the {' and '.join(key for key in item if key != 'name')} volume {item['name']}"
        if first != "containers" or index:
            return f"{below} of the container {item['name']}"
        if (
            "add" in steps
            and item[SECURITY_CONTEXT]["capabilities"]["add"][steps[-1]] in self.capabilities
        ):
            return f"`{self.key}.capabilities`"
        return f"`{below}`" if steps[0] == SECURITY_CONTEXT else f"`{self.key}.container.{below}`"


def security_needs(values: Values, version: int = NEWEST) -> dict[str, str]:
    """Return the settings that Pod Security `restricted` refuses, and the level that each needs.

    The settings are named as in messages. `version` is the minor version of the standards.
    """
    needs: dict[str, str] = {}
    for name, level in _named_violations(values, version):
        needs[name] = max(needs.get(name, level), level, key=LEVELS.index)
    return needs


def _named_violations(values: Values, version: int) -> Iterator[tuple[str, str]]:
    for pod in _release_pods(values):
        for violation in find_violations(pod.template, version):
            yield pod.name_of(violation.path), violation.needs
    for extra_object in values.get("extraObjects") or ():
        kind = extra_object.get("kind")
        name = f"{kind} {extra_object['metadata'].get('name')} of `extraObjects`"
        for template in _templates_in(extra_object):
            for violation in find_violations(template, version):
                yield name, violation.needs


def _release_pods(values: Values) -> Iterator[_ReleasePod]:
    """Yield the pods of the master and of each group of workers.

    TensorBoard, `helm test` and staging have none of these settings for themselves.
    """
    master = {**(values.get("master") or {}), "volumes": values.get("volumes")}
    yield _ReleasePod("master", _template(values, master))
    for group in merged_groups(values):
        key = f"workerGroups[{group['name']}]" if values.get("workerGroups") else "worker"
        template = _template(values, group, on_host=bool(values.get("hostNetwork")))
        yield _ReleasePod(key, template, group.get("capabilities") or ())


def _template(values: Values, group: Values, *, on_host: bool = False) -> Pod:
    """Return what Pod Security reads of the pods of a group, which may be the master.

    The chart's templates of these pods are worker/_worker_pod.tpl and master/_master_pod.tpl.
    """
    context = values.get(SECURITY_CONTEXT) or {}
    main_context = context
    if group.get("capabilities"):
        capabilities = context.get("capabilities") or {}
        added = [*(capabilities.get("add") or ()), *group["capabilities"]]
        main_context = {**context, "capabilities": {**capabilities, "add": added}}
    main = {SECURITY_CONTEXT: main_context, **(group.get("container") or {})}
    extra, init = (
        [{SECURITY_CONTEXT: context, **container} for container in group.get(key) or ()]
        for key in ("extraContainers", "initContainers")
    )
    # The last one of a name replaces the others.
    volumes = {volume.get("name"): volume for volume in group.get("volumes") or ()}
    spec = {
        **(group.get("podSpec") or {}),
        "hostNetwork": on_host,
        SECURITY_CONTEXT: values.get("podSecurityContext"),
        "containers": [main, *extra],
        "initContainers": init,
        "volumes": list(volumes.values()),
    }
    annotations = {**(values.get("podAnnotations") or {}), **(group.get("podAnnotations") or {})}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def _templates_in(extra_object: Mapping[str, Any]) -> Iterator[Pod]:
    """Yield an object that is a pod, or the template of pods that it has."""
    spec = extra_object.get("spec")
    if not isinstance(spec, Mapping):
        return
    if extra_object.get("kind") == "Pod":
        yield extra_object
    else:
        of_job = (spec.get("jobTemplate") or {}).get("spec") or {}
        template = spec.get("template") or of_job.get("template")
        if isinstance(template, Mapping) and isinstance(template.get("spec"), Mapping):
            yield template

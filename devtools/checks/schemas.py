"""JSON schemas of the APIs that the chart uses; the schemas refuse unknown fields.

`python -m devtools.checks.schemas` downloads the APIs as Go modules and writes to tests/chart:

- kubernetes-api.json: the kinds that the chart renders, for each Kubernetes release that it
  supports. Most definitions are equal in all releases, so the file has each version of a definition
  once, with its releases. kubeconform would download its own catalogue in each run.
- custom-resources.json: the spec of each custom resource that the chart renders or that
  docs/gitops.md shows, from the CustomResourceDefinitions of their projects.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml

from devtools.common.commands import read_output
from devtools.common.json_schema import forbid_unknown_properties
from devtools.common.repository import ROOT

RELEASES = (
    "v1.29.15",
    "v1.30.14",
    "v1.31.14",
    "v1.32.13",
    "v1.33.13",
    "v1.34.4",
    "v1.35.4",
    "v1.36.3",
    "v1.37.2",
)
# The kinds that the chart renders, except custom resources. Only the newest release has a
# PodGroup.
ROOTS = (
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.networking.v1.NetworkPolicy",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.rbac.v1.Role",
    "io.k8s.api.rbac.v1.RoleBinding",
    "io.k8s.api.scheduling.v1beta1.PodGroup",
)
# Files with CustomResourceDefinitions, by module and version.
CUSTOM_RESOURCES = {
    "volcano.sh/volcano@v1.14.1": ["config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.92.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
    "github.com/argoproj/argo-cd/v3@v3.1.0": ["manifests/crds/application-crd.yaml"],
    "github.com/fluxcd/helm-controller@v1.4.0": [
        "config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml"
    ],
    "github.com/fluxcd/source-controller@v1.7.2": [
        "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"
    ],
}
CHART_TESTS_FOLDER = ROOT / "tests" / "chart"
API_FILE = CHART_TESTS_FOLDER / "kubernetes-api.json"
CUSTOM_RESOURCES_FILE = CHART_TESTS_FOLDER / "custom-resources.json"
DEFINITION_REFERENCE = "#/definitions/"
# These two accept more types than OpenAPI 2 can express.
EXTENDED_TYPES: dict[str, Any] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}
Schema = dict[str, Any]


def download(module: str, file: str) -> str:
    """Return the text of a file of a module. Go checks the module against the checksum database.

    module: path@version. file: its path in the module.
    Raises DevtoolsError when Go cannot download the module, or its checksum is another.
    """
    with tempfile.TemporaryDirectory(prefix="hvd-schemas-") as cache:
        printed = read_output(
            ["go", "-C", cache, "mod", "download", "-json", module],
            remedy="make the Go module proxy reachable, or correct the version",
            environment={
                **os.environ,
                "GOMODCACHE": cache,
                "GOWORK": "off",
                "GOFLAGS": "-modcacherw",
            },
        )
        return Path(json.loads(printed)["Dir"], file).read_text()


def closure(definitions: dict[str, Schema]) -> dict[str, Schema]:
    """Return ROOTS and all definitions that they refer to, without documentation. The result
    refuses unknown fields.
    """
    result: dict[str, Schema] = {}
    pending = [root for root in ROOTS if root in definitions]
    while pending:
        name = pending.pop()
        if name not in result:
            result[name] = EXTENDED_TYPES.get(name) or forbid_unknown_properties(
                definitions[name], _is_documentation
            )
            pending += re.findall(rf'"{DEFINITION_REFERENCE}([^"]+)"', json.dumps(result[name]))
    return result


def _is_documentation(key: str) -> bool:
    return key in ("description", "default") or key.startswith("x-kubernetes")


def write_kubernetes() -> None:
    """Download every release and write its API, with one definition on each line."""
    variants: dict[tuple[str, str], list[str]] = {}
    for release in RELEASES:
        swagger = download(f"k8s.io/kubernetes@{release}", "api/openapi-spec/swagger.json")
        for name, schema in closure(json.loads(swagger)["definitions"]).items():
            text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
            variants.setdefault((name, text), []).append(release)
    body = ",\n".join(
        f'["{name}", {json.dumps(having)}, {text}]'
        for (name, text), having in sorted(variants.items())
    )
    API_FILE.write_text(f'{{"releases": {json.dumps(RELEASES)}, "definitions": [\n{body}\n]}}\n')


def write_custom_resources() -> None:
    """Download the CustomResourceDefinitions and write the spec of each served version, with one
    resource on each line.
    """
    schemas: dict[str, Schema] = {}
    files = [(module, file) for module in CUSTOM_RESOURCES for file in CUSTOM_RESOURCES[module]]
    for module, file in files:
        # Go accepts a flag anywhere in a pattern, Python only at its start.
        text = download(module, file).replace("^(?i)", "(?i)^")
        definition = yaml.safe_load(text)["spec"]
        for version in definition["versions"]:
            if version["served"]:
                name = f"{definition['group']}/{version['name']}/{definition['names']['kind']}"
                spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                schemas[name] = forbid_unknown_properties(spec, _is_documentation)
    body = ",\n".join(f'"{name}": {json.dumps(schemas[name])}' for name in sorted(schemas))
    modules = json.dumps([*CUSTOM_RESOURCES])
    CUSTOM_RESOURCES_FILE.write_text(f'{{"from": {modules}, "schemas": {{\n{body}\n}}}}\n')


if __name__ == "__main__":
    write_kubernetes()
    write_custom_resources()

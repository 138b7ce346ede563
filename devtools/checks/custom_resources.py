"""The schemas of the custom resources that the chart renders or that docs/gitops.md shows.

`python -m devtools.checks.custom_resources` writes tests/chart/custom-resources.json from the
CustomResourceDefinitions in the Go modules of the projects that own them. The file has the spec of
each resource as a JSON schema that refuses unknown fields.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from devtools.checks.kube_schemas import ROOT, download
from devtools.common.json_schema import forbid_unknown_properties

SPEC_FILE = ROOT / "tests" / "chart" / "custom-resources.json"


class Definition(NamedTuple):
    """A CustomResourceDefinition: the module at a version, and the file in it."""

    module: str
    file: str


DEFINITIONS = (
    Definition(
        "volcano.sh/volcano@v1.14.1",
        "config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml",
    ),
    Definition(
        "sigs.k8s.io/scheduler-plugins@v0.33.5",
        "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml",
    ),
    Definition(
        "github.com/prometheus-operator/prometheus-operator@v0.92.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
    Definition("github.com/argoproj/argo-cd/v3@v3.1.0", "manifests/crds/application-crd.yaml"),
    Definition(
        "github.com/fluxcd/helm-controller@v1.4.0",
        "config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml",
    ),
    Definition(
        "github.com/fluxcd/source-controller@v1.7.2",
        "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml",
    ),
)


def spec_schemas(definition: dict[str, Any]) -> dict[str, Any]:
    """The schema of the spec of each version that a CustomResourceDefinition serves."""
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    return {
        f"{group}/{version['name']}/{kind}": forbid_unknown_properties(
            version["schema"]["openAPIV3Schema"]["properties"]["spec"], _is_documentation
        )
        for version in definition["spec"]["versions"]
        if version["served"]
    }


def _is_documentation(key: str) -> bool:
    return key in ("description", "default") or key.startswith("x-kubernetes")


def load() -> dict[str, Any]:
    """Each resource's schema by apiVersion/kind. Raises ValueError if modules differ."""
    document = json.loads(SPEC_FILE.read_text())
    if document["from"] != [item.module for item in DEFINITIONS]:
        raise ValueError(f"{SPEC_FILE} is not of these modules: `make schemas`")
    schemas: dict[str, Any] = document["schemas"]
    return schemas


def main() -> None:
    """Downloads the modules and writes SPEC_FILE, with one resource on each line."""
    schemas: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="custom-resources-") as folder:
        for item in DEFINITIONS:
            text = (download(item.module, Path(folder)) / item.file).read_text()
            schemas |= spec_schemas(yaml.safe_load(text))
    lines = ",\n".join(f'"{name}": {json.dumps(schemas[name])}' for name in sorted(schemas))
    modules = json.dumps([item.module for item in DEFINITIONS])
    SPEC_FILE.write_text(f'{{"from": {modules}, "schemas": {{\n{lines}\n}}}}\n')
    print(f"wrote {SPEC_FILE}")


if __name__ == "__main__":
    main()

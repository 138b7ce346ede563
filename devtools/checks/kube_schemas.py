"""The API of each Kubernetes release that the chart supports, for the objects that it creates.

`python -m devtools.checks.kube_schemas` writes tests/chart/kubernetes-api.json from the OpenAPI
description in the Go modules k8s.io/kubernetes@VERSION. Most definitions are equal in all releases,
so the file has each version of a definition once, with the releases that have it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from devtools.common.json_schema import forbid_unknown_properties

RELEASES = (
    "v1.29.15",
    "v1.30.14",
    "v1.31.14",
    "v1.32.13",
    "v1.33.13",
    "v1.34.4",
    "v1.35.4",
    "v1.36.3",
    "v1.37.1",
)
# What the chart renders, except custom resources.
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
    # Only the newest releases have one of these.
    "io.k8s.api.scheduling.v1alpha2.PodGroup",
    "io.k8s.api.scheduling.v1alpha3.PodGroup",
    "io.k8s.api.scheduling.v1beta1.PodGroup",
)
ROOT = Path(__file__).resolve().parents[2]
API_FILE = ROOT / "tests" / "chart" / "kubernetes-api.json"
SWAGGER = "api/openapi-spec/swagger.json"
REFERENCE = "#/definitions/"
# These two accept more types than OpenAPI 2 can express.
EXTENDED_TYPES: dict[str, Any] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}
KUBECONFORM_NAME = "{{.ResourceKind}}{{.KindSuffix}}.json"
Schema = dict[str, Any]


def closure(definitions: dict[str, Schema]) -> dict[str, Schema]:
    """ROOTS and all definitions that they refer to, without documentation and unknown fields."""
    result: dict[str, Schema] = {}
    pending = [root for root in ROOTS if root in definitions]
    while pending:
        name = pending.pop()
        if name not in result:
            result[name] = EXTENDED_TYPES.get(name) or forbid_unknown_properties(
                definitions[name], _is_documentation
            )
            pending += _references(result[name])
    return result


def _references(schema: Schema) -> list[str]:
    return re.findall(rf'"{REFERENCE}([^"]+)"', json.dumps(schema))


def _is_documentation(key: str) -> bool:
    return key in ("description", "default") or key.startswith("x-kubernetes")


def merge(releases: dict[str, dict[str, Schema]]) -> str:
    """The file for all releases, with one definition on each line."""
    variants: dict[tuple[str, str], list[str]] = {}
    for release, definitions in releases.items():
        for name, schema in definitions.items():
            text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
            variants.setdefault((name, text), []).append(release)
    lines = [
        f'["{name}", {json.dumps(having)}, {text}]'
        for (name, text), having in sorted(variants.items())
    ]
    body = ",\n".join(lines)
    return (
        f'{{"sha256": "{checksum(body)}", "releases": {json.dumps(list(releases))},'
        f' "definitions": [\n{body}\n]}}\n'
    )


def checksum(body: str) -> str:
    """Changes when a definition is edited by hand."""
    return hashlib.sha256(body.encode()).hexdigest()


def load() -> dict[str, dict[str, Schema]]:
    """Release -> its definitions, from API_FILE.

    Raises ValueError when the file was edited by hand or has other releases than RELEASES.
    """
    text = API_FILE.read_text()
    document = json.loads(text)
    body = text.partition('"definitions": [\n')[2].removesuffix("\n]}\n")
    if document["sha256"] != checksum(body) or document["releases"] != list(RELEASES):
        raise ValueError(f"{API_FILE} is not what `make schemas` wrote for {', '.join(RELEASES)}")
    releases: dict[str, dict[str, Schema]] = {release: {} for release in RELEASES}
    for name, having, schema in document["definitions"]:
        for release in having:
            releases[release][name] = schema
    return releases


def write_for_kubeconform(folder: Path) -> str:
    """Writes a file for each release and kind; returns the -schema-location that leads to them."""
    for release, definitions in load().items():
        (folder / release).mkdir()
        for root in (root for root in ROOTS if root in definitions):
            group, version, kind = root.removeprefix("io.k8s.api.").split(".")
            suffix = version if group == "core" else f"{group}-{version}"
            schema = {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": REFERENCE + root,
                "definitions": definitions,
            }
            name = f"{kind.lower()}-{suffix}.json"
            (folder / release / name).write_text(json.dumps(schema))
    return f"{folder}/{{{{.NormalizedKubernetesVersion}}}}/{KUBECONFORM_NAME}"


def download(module: str, cache: Path) -> Path:
    """The folder of a module at a version, which Go checks against the checksum database."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=cache,
        env={**os.environ, "GOMODCACHE": str(cache), "GOWORK": "off", "GOFLAGS": "-modcacherw"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"go mod download {module}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


def definitions_of(release: str, cache: Path) -> dict[str, Schema]:
    """A release's definitions, from its module."""
    swagger = download(f"k8s.io/kubernetes@{release}", cache) / SWAGGER
    definitions: dict[str, Schema] = json.loads(swagger.read_text())["definitions"]
    return definitions


def main() -> None:
    """Downloads every release and writes API_FILE."""
    releases = {}
    for release in RELEASES:
        with tempfile.TemporaryDirectory(prefix="kube-schemas-") as folder:
            releases[release] = closure(definitions_of(release, Path(folder)))
    API_FILE.write_text(merge(releases))
    print(f"wrote {API_FILE}")


if __name__ == "__main__":
    main()

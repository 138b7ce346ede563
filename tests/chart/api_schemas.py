"""Load the schemas that `make schemas` has downloaded.

Each function raises ValueError when the file is made from other sources than devtools names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devtools.checks.schemas import (
    API_FILE,
    CUSTOM_RESOURCES,
    CUSTOM_RESOURCES_FILE,
    DEFINITION_REFERENCE,
    RELEASES,
    ROOTS,
    Schema,
)


def load_kubernetes() -> dict[str, dict[str, Schema]]:
    """Load the definitions of each release."""
    document = _read(API_FILE, "releases", RELEASES)
    releases: dict[str, dict[str, Schema]] = {release: {} for release in RELEASES}
    for name, having, schema in document["definitions"]:
        for release in having:
            releases[release][name] = schema
    return releases


def load_custom_resources() -> dict[str, Schema]:
    """Return the spec of each custom resource by apiVersion/kind."""
    schemas: dict[str, Schema] = _read(CUSTOM_RESOURCES_FILE, "from", CUSTOM_RESOURCES)["schemas"]
    return schemas


def _read(file: Path, key: str, sources: Iterable[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    if document[key] != [*sources]:
        raise ValueError(f"{file} is not made from {', '.join(sources)}: run `make schemas`")
    return document


def write_for_kubeconform(folder: Path) -> str:
    """Write a file for each release and kind. Return the -schema-location of these files."""
    for release, definitions in load_kubernetes().items():
        (folder / release).mkdir()
        for root in (root for root in ROOTS if root in definitions):
            group, version, kind = root.removeprefix("io.k8s.api.").split(".")
            suffix = version if group == "core" else f"{group}-{version}"
            schema = {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": DEFINITION_REFERENCE + root,
                "definitions": definitions,
            }
            (folder / release / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(schema))
    name = "{{.ResourceKind}}{{.KindSuffix}}.json"
    return f"{folder}/{{{{.NormalizedKubernetesVersion}}}}/{name}"

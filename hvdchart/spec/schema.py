"""The JSON schema of a spec, generated from its dataclasses."""

from __future__ import annotations

import json

from hvdchart.spec.fields import ObjectOf
from hvdchart.spec.model import Spec


def json_schema() -> str:
    """The JSON schema of a spec, as text."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "hvdchart spec"}
    return json.dumps({**head, **ObjectOf(Spec).schema()}, indent=1) + "\n"

"""The JSON schema of a spec, generated from the spec's own dataclasses."""

from __future__ import annotations

import json

from hvdchart.spec.model import Spec
from hvdchart.spec.objects import Table


def json_schema() -> str:
    """The JSON schema of a spec, as text."""
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "hvdchart spec",
    }
    return json.dumps({**head, **Table(Spec).schema()}, indent=1) + "\n"

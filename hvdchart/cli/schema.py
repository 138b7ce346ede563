"""The command `schema`."""

import sys

EPILOG = """\b
Example:
  hvdchart schema > spec.schema.json

Exit codes: 0 printed."""


def schema() -> None:
    """Print the JSON schema of specs, for editors."""
    from hvdchart.spec.model import json_schema

    sys.stdout.write(json_schema())

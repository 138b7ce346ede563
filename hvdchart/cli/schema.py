"""The command `schema`."""

from hvdchart.cli.terminal import write_document


def schema() -> None:
    """Print the JSON schema of specs, for editors.

    Example:
      hvdchart schema > spec.schema.json

    Exit codes: 0 printed.
    """
    from hvdchart.spec.model import json_schema

    write_document(json_schema())

"""The command `templates`."""

from hvdchart.cli.options import Format, print_document
from hvdchart.cli.terminal import show

EPILOG = """\b
Examples:
  hvdchart templates list
  hvdchart templates list -o json

Exit codes: 0 printed."""


def list_templates(output: Format = "text") -> None:
    """Print the templates that `init` knows."""
    from hvdchart.project.templates import TEMPLATES

    if output != "text":
        print_document(
            [{"name": each.name, "about": each.about} for each in TEMPLATES.values()], output
        )
    else:
        width = max(map(len, TEMPLATES))
        for each in TEMPLATES.values():
            show(f"{each.name:<{width}}  {each.about}")

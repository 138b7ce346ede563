"""`python -m devtools.docs_gen` writes all generated files.

With `--check` it writes nothing, and exits with status 1 when a file differs from its sources.
"""

from __future__ import annotations

import sys

from devtools.docs_gen import (
    chart_docs,
    dashboard,
    image_docs,
    navigation,
    programs,
    promises,
    reference_docs,
    requirements,
    spec_docs,
)
from devtools.docs_gen.generated import write_or_compare

# `make goldens` writes the golden values files.
# The list of pages copies the titles of the other pages.
GENERATORS = (
    chart_docs,
    dashboard,
    spec_docs,
    image_docs,
    reference_docs,
    requirements,
    promises,
    navigation,
)


def main(arguments: list[str]) -> int:
    """Run all generators. Return 1 when one finds a difference."""
    differs = 0
    for generator in GENERATORS:
        differs |= write_or_compare(generator.generated_texts(), arguments)
    return differs | programs.write_or_compare(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

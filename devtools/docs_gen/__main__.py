"""`python -m devtools.docs_gen` writes all generated files.

With `--check` it writes nothing, and exits with status 1 when a file differs from its sources. A
proof that is older than the content of its image does not change the status.
"""

from __future__ import annotations

import sys

from devtools.docs_gen import (
    bake_file,
    chart_docs,
    image_docs,
    library_docs,
    loop_docs,
    problem_docs,
    reference_docs,
    spec_docs,
    version_docs,
)
from devtools.docs_gen.generated import write_or_compare

# `make goldens` writes the golden values files.
GENERATORS = (
    chart_docs, spec_docs, image_docs, bake_file, reference_docs, version_docs, problem_docs,
    library_docs, loop_docs,
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Runs all generators. Returns 1 when one finds a difference."""
    differs = 0
    for generator in GENERATORS:
        texts = generator.generated_texts()
        if "--check" in arguments:
            for page in [p for p, text in texts.items() if image_docs.differs_only_in_age(p, text)]:
                print(f"{page}: a proof is older than its image: `make generate`", file=sys.stderr)
                del texts[page]
        differs |= write_or_compare(texts, arguments)
    return differs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

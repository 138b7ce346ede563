"""`python -m devtools.docs_gen` writes all generated files, and with `--check` compares them."""

from __future__ import annotations

import importlib
import sys

# The golden values files are apart: `make goldens`.
GENERATORS = (
    "chart_docs", "spec_docs", "image_docs", "bake_file", "reference_docs", "licence_docs",
    "version_docs", "problem_docs", "library_docs",
    "pictures",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Runs all generators. Returns 1 when one finds a difference."""
    modules = [importlib.import_module(f"devtools.docs_gen.{name}") for name in GENERATORS]
    return max(int(module.main(arguments)) for module in modules)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

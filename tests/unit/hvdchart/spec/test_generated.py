"""The schema of specs and the tables of docs/spec.md are those of the model."""

from __future__ import annotations

from devtools.docs_gen.spec_docs import generated_texts


def test_generated_docs_of_the_spec_are_current() -> None:
    for path, text in generated_texts().items():
        assert path.read_text() == text, "run `make generate`"

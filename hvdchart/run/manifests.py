"""Prepare the manifests of a release for people. Pure."""

from __future__ import annotations

import hashlib
import re

_SECRET = re.compile(r"(?m)^kind: Secret$")
# A value of a ConfigMap's binaryData.
_ARCHIVE_VALUE = re.compile(r"(?m)^( +[-._\w]+: )([A-Za-z0-9+/]{100,}={0,2})$")


def shorten_archives(manifest: str) -> str:
    """Replace each long base64 text in manifests by its size and a digest."""

    def describe(match: re.Match[str]) -> str:
        digest = hashlib.sha256(match[2].encode()).hexdigest()[:12]
        return f"{match[1]}({len(match[2])} characters of base64, sha256 {digest})"

    return _ARCHIVE_VALUE.sub(describe, manifest)


def drop_secrets(manifest: str) -> str:
    """Return manifests without Secrets, each after its mark."""
    documents = [part.strip() for part in re.split(r"(?m)^---\s*$", manifest)]
    public_documents = [
        document for document in documents if document and not _SECRET.search(document)
    ]
    return "".join(f"---\n{document}\n" for document in public_documents)

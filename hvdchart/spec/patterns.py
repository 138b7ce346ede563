"""Patterns of the texts in a spec, with Kubernetes' limits: names, labels, paths, environment."""

from __future__ import annotations

from collections.abc import Mapping

from hvdchart.spec.fields import AnyObject, MapOf, String
from hvdchart.spec.yaml_tree import Node, Plain

API_VERSION = "hvdchart/v1"
# RFC 1035 labels; the lengths leave room for the suffixes that the chart appends.
RELEASE_NAME = String(
    "a name of a-z, 0-9 and - that starts with a letter", r"[a-z]([-a-z0-9]*[a-z0-9])?", 47
)
GROUP_NAME = String(
    "a name of a-z, 0-9 and - that starts with a letter", r"[a-z]([-a-z0-9]*[a-z0-9])?", 30
)
OBJECT_NAME = String("the name of a Kubernetes object", r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", 253)
LABEL_KEY = String(
    "a label key such as example.com/node-type",
    r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?", 317,
)  # fmt: skip
LABEL_VALUE = String(
    "a label value: up to 63 of A-Z a-z 0-9 - _ .",
    r"([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?",
    63,
    0,
)
RESOURCE = String(
    "an extended resource such as nvidia.com/gpu",
    r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?", 317,
)  # fmt: skip
ENV_NAME = String(
    "the name of an environment variable: A-Z a-z 0-9 _", r"[A-Za-z_][A-Za-z0-9_]*", 256
)
# No "..": the API server refuses it in a hostPath, and it hides where data comes from.
ABSOLUTE = String("an absolute path without ..", r"/(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f:]*", 1024)
RELATIVE = String("a relative path without ..", r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f]+", 1024)
HOST = String("a host name or address", r"[A-Za-z0-9]([-.:A-Za-z0-9]*[A-Za-z0-9])?", 253)
INTERFACE = String("the name of a network interface", r"[-._a-zA-Z0-9]+", 15)
IMAGE = String(
    "an image name without the tag",
    r"[a-z0-9]([-a-z0-9._:]*[a-z0-9])?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*", 255,
)  # fmt: skip
TAG = String("an image tag", r"[A-Za-z0-9_][-.A-Za-z0-9_]*", 128)
DIGEST = String(
    "an image digest: sha256: and 64 of 0-9 a-f, or sha512: and 128",
    r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", 135,
)  # fmt: skip
NODE_SELECTOR = MapOf(LABEL_KEY, LABEL_VALUE)


class EnvValue:
    """The value of a variable: text, a number in its spelling, or a Kubernetes `valueFrom` map."""

    def read(self, node: Node, path: str) -> str | Mapping[str, Plain]:
        if isinstance(node.value, dict):
            return AnyObject().read(node, path)
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return node.text
        return String(
            'text or a number ("true" and "" need quotes)', longest=32768, shortest=0
        ).read(node, path)

    def schema(self) -> dict[str, Plain]:
        return {"type": ["string", "number", "object"]}


ENV = MapOf(ENV_NAME, EnvValue())

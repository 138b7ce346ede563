"""The kinds of text in a spec, with Kubernetes' limits: names, labels, paths, environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hvdchart.spec.fields import Free, MapOf, Text
from hvdchart.spec.yaml_tree import Node, Plain

API_VERSION = "hvdchart/v1"
# RFC 1035 labels; the lengths leave room for what the chart appends to them.
RELEASE_NAME = Text(
    "a name of a-z, 0-9 and - that starts with a letter", r"[a-z]([-a-z0-9]*[a-z0-9])?", 47
)
GROUP_NAME = Text(
    "a name of a-z, 0-9 and - that starts with a letter", r"[a-z]([-a-z0-9]*[a-z0-9])?", 30
)
OBJECT_NAME = Text("the name of a Kubernetes object", r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", 253)
LABEL_KEY = Text(
    "a label key such as example.com/node-type",
    r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?", 317,
)  # fmt: skip
LABEL_VALUE = Text(
    "a label value: up to 63 of A-Z a-z 0-9 - _ .",
    r"([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?",
    63,
    0,
)
RESOURCE = Text(
    "an extended resource such as nvidia.com/gpu",
    r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?", 317,
)  # fmt: skip
ENV_NAME = Text("an environment variable's name of A-Z a-z 0-9 _", r"[A-Za-z_][A-Za-z0-9_]*", 256)
# No "..": the API server refuses a hostPath that climbs, and it hides where data comes from.
ABSOLUTE = Text(
    "an absolute path without .. in it", r"/(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f:]*", 1024
)
RELATIVE = Text(
    "a relative path without .. in it", r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f]+", 1024
)
HOST = Text("a host's name or address", r"[A-Za-z0-9]([-.:A-Za-z0-9]*[A-Za-z0-9])?", 253)
INTERFACE = Text("a network interface's name", r"[-._a-zA-Z0-9]+", 15)
IMAGE = Text(
    "an image name without the tag",
    r"[a-z0-9]([-a-z0-9._:]*[a-z0-9])?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*", 255,
)  # fmt: skip
TAG = Text("an image tag", r"[A-Za-z0-9_][-.A-Za-z0-9_]*", 128)
NODE_SELECTOR = MapOf(LABEL_KEY, LABEL_VALUE)


@dataclass(frozen=True)
class EnvValue:
    """A variable's value: text, a number as it is written, or Kubernetes' valueFrom map."""

    def read(self, node: Node, path: str) -> str | Mapping[str, Plain]:
        if isinstance(node.value, dict):
            return Free().read(node, path)
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return node.text
        return Text('text or a number; in quotes for "true" or ""', longest=32768, shortest=0).read(
            node, path
        )

    def schema(self) -> dict[str, Plain]:
        return {"type": ["string", "number", "object"]}


ENV = MapOf(ENV_NAME, EnvValue())

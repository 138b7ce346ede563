"""Write values as YAML: in a stable order, with reasons as comments.

Helm reads YAML 1.1, where `no` is false, and other programs read YAML 1.2. Text is written without
quotes only if both versions read it as text.
"""

from __future__ import annotations

import io
import re
from typing import Any

from hvd_pods.shared.untrusted import printable
from hvdchart.plan.model import Plan
from hvdchart.plan.rules import Reason
from hvdchart.quantity import pluralize
from hvdchart.spec.yaml_tree import Plain
from hvdchart.values.check_values import checked_values
from hvdchart.values.from_plan import ValuePath, explain

_TEXT = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*")
_YAML_1_1_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_COMMENT_COLUMN = 45
_NULL = "tag:yaml.org,2002:null"


def render_values(plan: Plan, origin: str = "a spec") -> str:
    """Return the values file of a plan as text; `origin` names the spec in its first line.

    Raises SpecError when the chart refuses the values because of the spec's `values`, and
    ValuesError when it refuses others, which is a defect of hvdchart.
    """
    command = printable(f"hvdchart render {origin}", keeps="")
    head = f"# Rendered by `{command}`: edit the spec, not this file.\n"
    batch = "" if plan.global_batch is None else f", global batch {plan.global_batch}"
    head += f"# {pluralize(plan.ranks, 'rank')} on {pluralize(plan.workers, 'worker')}{batch}.\n"
    return head + dump(checked_values(plan), explain(plan))


def dump(values: dict[str, Plain], reasons: dict[ValuePath, Reason]) -> str:
    """Return `values` as block YAML; `reasons` become comments after the values at their paths."""
    from ruamel.yaml import YAML

    yaml = YAML()
    # By default, null is written as an empty text, which looks like a missing value.
    yaml.representer.add_representer(
        type(None), lambda representer, _: representer.represent_scalar(_NULL, "null")
    )
    yaml.width = 1_000_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(_add_comments(values, (), reasons), stream)
    # A comment after the last value is written without a line end.
    return stream.getvalue().rstrip("\n") + "\n"


def _add_comments(value: Plain, path: ValuePath, reasons: dict[ValuePath, Reason]) -> Any:
    """Return a value for ruamel.yaml, with comments; write values without nesting on one line."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(value, dict):
        result = CommentedMap()
        for key, child in value.items():
            result[_text(key)] = _add_comments(child, (*path, key), reasons)
            reason = reasons.get((*path, key))
            if reason and not isinstance(child, dict) and child != []:
                result.yaml_add_eol_comment(reason.because, key, column=_COMMENT_COLUMN)
        return result
    if isinstance(value, list):
        items = CommentedSeq()
        for index, child in enumerate(value):
            items.append(_add_comments(child, (*path, index), reasons))
            name = str(child.get("name")) if isinstance(child, dict) else ""
            if (*path, name) in reasons:
                items[index].fa.set_flow_style()
                items.yaml_add_eol_comment(
                    reasons[(*path, name)].because, index, column=_COMMENT_COLUMN
                )
            elif isinstance(child, dict) and not any(
                isinstance(inner, dict | list) or (*path, index, key) in reasons
                for key, inner in child.items()
            ):
                items[index].fa.set_flow_style()
        if items and not any(isinstance(item, dict | list) for item in items):
            items.fa.set_flow_style()
        return items
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> Any:
    """Return a text, marked for quotes unless every YAML version reads it as text without them."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    plain = _TEXT.fullmatch(value) and value.lower() not in _YAML_1_1_WORDS
    return value if plain else DoubleQuotedScalarString(value)

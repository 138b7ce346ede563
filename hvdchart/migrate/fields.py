"""Apply fields.json, the table of fields for which a line says what becomes of them. Pure."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.paths import KeyPath, value_at


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("fields.json").read_text("utf-8"))
    return table


def apply_table(
    ledger: Ledger, section: str, base: KeyPath = (), group: str = "", workers: KeyPath = ()
) -> None:
    """Carry over or drop the fields below `base`, as a section of the table says.

    `group` is worker or master. `workers` is the place at which the workers have these fields.
    """
    for rule in _table()[section]:
        for field in rule["fields"] if rule.get("of", group) == group else ():
            steps = tuple(field.split("."))
            _apply(ledger, rule, (*base, *steps), group, (*workers, *steps))


def _apply(
    ledger: Ledger, rule: dict[str, Any], old: KeyPath, group: str, workers: KeyPath
) -> None:
    check = rule.get("check", "")
    reason = rule.get("reason", "")
    new = tuple(rule.get("new", "").format(group=group, field=old[-1]).split("."))
    carries_over = "new" in rule
    if "ifUnset" in rule:
        carries_over = value_at(ledger.values, new) is None
        check = "" if carries_over else check
    if "shared" in rule and ledger.value_at(*old) == ledger.value_at(*workers):
        ledger.drop(old, "the workers have the same")
    elif carries_over:
        value = ledger.value_at(*old)
        kind = rule.get("as")
        if check and ledger.is_set(old):
            ledger.add_check(check.format(value=value, group=group))
        if value is not None and kind == "integer":
            value = ledger.integer_at(*old)
        elif value is not None and kind == "boolean":
            value = ledger.is_true(*old)
        elif value is not None and kind:
            value = kind.get(ledger.text_at(*old))
            if value is None:
                raise ledger.type_error(old, f"one of {', '.join(kind)}")
        ledger.carry_over(old, new, reason, value)
    elif check:
        ledger.leave_out(old, check)
    else:
        ledger.drop(old, reason)

"""Lets commands take several options as one value."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from hvdchart.script.options import SCRIPT_OPTIONS, ScriptRun


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of each dataclass among its parameters."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if dataclasses.is_dataclass(parameter.annotation)
    }
    options = {name: _options(group) for name, group in groups.items()}
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter)
            continue
        group = groups[parameter.name]
        parameters += [
            parameter.replace(name=name, default=getattr(group, name), annotation=hint)
            for name, hint in options[parameter.name].items()
        ]

    @wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options[name]})
        command(**values)

    # Typer reads it.
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _options(group: type) -> dict[str, Any]:
    """Return the type of each option of a group, as Typer reads it."""
    if group is ScriptRun:
        hints = get_type_hints(group)
        return {
            name: Annotated[hints[name], typer.Option(option.option, **option.shown)]
            for name, option in SCRIPT_OPTIONS.items()
        }
    return get_type_hints(group, include_extras=True)

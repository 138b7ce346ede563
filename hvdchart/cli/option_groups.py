"""Lets commands take several options as one value."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_type_hints


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of each dataclass among its parameters as options."""
    own = inspect.signature(command)
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation
        for parameter in own.parameters.values()
        if dataclasses.is_dataclass(parameter.annotation)
    }
    parameters = []
    for parameter in own.parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter)
            continue
        group = groups[parameter.name]
        hints = get_type_hints(group, include_extras=True)
        parameters += [
            parameter.replace(name=field.name, default=field.default, annotation=hints[field.name])
            for field in dataclasses.fields(group)
        ]

    @wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            fields = {field.name: values.pop(field.name) for field in dataclasses.fields(group)}
            values[name] = group(**fields)
        command(**values)

    # Typer reads it.
    call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call

"""The settings of `launch` and `Caller`: the type of each, and the run that they describe."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TextIO, TypeVar, overload

from hvdchart.calls.traceback_filter import callers_lines
from hvdchart.errors import SpecError
from hvdchart.script.options import ScriptRun
from hvdchart.spec.model import Spec
from hvdchart.text import join_names

_Arguments = ParamSpec("_Arguments")
_SettingsClass = TypeVar("_SettingsClass")
_Owner = TypeVar("_Owner")
_Result = TypeVar("_Result")


# No setting is as large: Python can neither print nor convert numbers of any size.
_MAX_SETTING = 1e18


def _kind(expected: str, *kinds: type) -> dict[str, Any]:
    """Return the type of a setting other than None, and a description of it."""
    return {"kinds": kinds, "expected": expected}


def _seconds(minimum: float, maximum: float, end: str = "") -> dict[str, Any]:
    """Return the same for seconds in a range. Timers and sockets overflow with longer times."""
    return {
        **_kind(f"{minimum:.0f} to {maximum:.0f} seconds{end}", Real),
        "range": (minimum, maximum),
    }


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings that a spec would otherwise contain; None and empty ones were not given."""

    workers: int | None = field(default=None, metadata=_kind("a whole number, such as 4", Integral))
    gpus: int | None = field(
        default=None, metadata=_kind("a whole number, such as 1: the GPUs of a worker", Integral)
    )
    cpu: float | str | None = field(
        default=None, metadata=_kind('a number of CPUs, such as 4 or "500m"', Real, str)
    )
    memory: str = field(default="", metadata=_kind('an amount of memory, such as "16Gi"', str))
    image: str = field(
        default="", metadata=_kind('the name of an image, such as "team/app:1.0"', str)
    )
    env: Mapping[str, str] | None = field(
        default=None, metadata=_kind('variables by their names, such as {"LEVEL": "2"}', Mapping)
    )
    secrets: Sequence[str] = field(
        default=(), metadata=_kind('a list of names, such as ["wandb"]', Sequence)
    )
    volumes: Mapping[str, str] | None = field(
        default=None,
        metadata=_kind('volumes by their names, such as {"data": "pvc:scans"}', Mapping),
    )
    settings: Sequence[str] = field(
        default=(), metadata=_kind('a list, such as ["image.pullSecrets=[mine]"]', Sequence)
    )

    def find_given_settings(self) -> dict[str, Any]:
        """Return the settings that were given, by name."""
        settings = {
            setting.name: getattr(self, setting.name) for setting in dataclasses.fields(RunSettings)
        }
        return {
            name: value for name, value in settings.items() if value not in (None, "", (), [], {})
        }

    def script_run(self, name: str) -> ScriptRun:
        """Return the run, as if the settings were typed as options of `hvdchart run`.

        Raises SpecError for a setting of a wrong type.
        """
        arguments = self.find_given_settings()
        check_kinds(arguments)
        for setting in ("secrets", "settings"):
            value = arguments.get(setting)
            if isinstance(value, str):
                raise SpecError("the settings", setting, f"got {value!r}", f"a list: [{value!r}]")
        if "cpu" in arguments:
            arguments["cpu"] = str(arguments["cpu"])
        for setting, value in arguments.items():
            if isinstance(value, Mapping):
                arguments[setting] = [f"{key}={text}" for key, text in value.items()]
        return ScriptRun(["python3"], name=name, **arguments)


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings):
    """The arguments of `Caller`; `help(hvdchart.launch)` describes each setting."""

    spec: str | Path | Spec | None = None
    code: str | Path | None = None
    name: str = ""
    namespace: str | None = field(default=None, metadata=_kind("the name of a namespace", str))
    context: str | None = None
    helm: str = field(default="helm", metadata=_kind("the name of a program, or its path", str))
    # A caller needs time to find the server.
    idle: float = field(default=600.0, metadata=_seconds(10, 1e6))
    force: bool = field(default=False, metadata=_kind("True or False", bool))
    output: TextIO | None = None

    def check(self) -> None:
        """Raise SpecError for run settings beside a spec, and for settings of a wrong type."""
        arguments = self.find_given_settings()
        if self.spec is not None and arguments:
            expected = "keys of the spec, or no spec="
            raise SpecError("the settings", join_names(arguments), "given beside spec=", expected)
        common = {setting.name for setting in dataclasses.fields(RunSettings)}
        check_kinds({name: value for name, value in vars(self).items() if name not in common})
        if self.output is not None and not hasattr(self.output, "write"):
            expected = "a file that is open for writing, such as sys.stderr"
            raise SpecError("the settings", "output", f"got {self.output!r}", expected)


@dataclass(frozen=True)
class LaunchArguments(Settings):
    """The arguments of `launch`."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    timeout: float | None = field(
        default=None, kw_only=True, metadata=_seconds(0, 1e9, ", or None for no limit")
    )


def check_kinds(settings: Mapping[str, Any]) -> None:
    """Raise SpecError for a setting of a wrong type, and for a number that it cannot have.

    None is a setting that was not given.
    """
    for setting in dataclasses.fields(LaunchArguments):
        value = settings.get(setting.name)
        if value is None or not setting.metadata:
            continue
        kinds = setting.metadata["kinds"]
        expected = setting.metadata["expected"]
        is_other = isinstance(value, bool) and bool not in kinds
        if isinstance(value, int | float) and abs(value) > _MAX_SETTING:
            problem = f"got a number beyond {_MAX_SETTING:.0e}"
            raise SpecError("the settings", setting.name, problem, expected)
        if is_other or not isinstance(value, kinds) or not _is_in_range(value, setting.metadata):
            raise SpecError("the settings", setting.name, f"got {value!r}", expected)


def _is_in_range(value: Any, metadata: Mapping[str, Any]) -> bool:
    """Return whether a number is in the range of its setting, if that has one; NaN is in none."""
    if "range" not in metadata:
        return True
    minimum, maximum = metadata["range"]
    return bool(minimum <= value <= maximum)


class FieldsAsArguments(Generic[_Arguments, _SettingsClass]):
    """Lets a function take the fields of a class as arguments; its last parameter gets the object.

    Type checkers, help() and notebooks show the arguments as if the function itself declared them.
    The tracebacks of its exceptions leave out the lines of hvdchart.
    """

    def __init__(self, make: Callable[_Arguments, _SettingsClass]) -> None:
        self._make = make

    @overload
    def __call__(
        self, function: Callable[[_SettingsClass], _Result]
    ) -> Callable[_Arguments, _Result]: ...

    @overload
    def __call__(
        self, function: Callable[[_Owner, _SettingsClass], _Result]
    ) -> Callable[Concatenate[_Owner, _Arguments], _Result]: ...

    def __call__(self, function: Callable[..., _Result]) -> Callable[..., _Result]:
        original = inspect.signature(function)
        *before, _ = original.parameters.values()
        arguments = inspect.signature(self._make).parameters.values()
        signature = original.replace(parameters=[*before, *arguments])

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> _Result:
            with callers_lines:
                try:
                    signature.bind(*args, **kwargs)
                except TypeError as error:
                    # Reword Python's message, which would name the class.
                    raise TypeError(f"{function.__qualname__}() {error}") from None
                settings = self._make(*args[len(before) :], **kwargs)
                return function(*args[: len(before)], settings)

        # help() and notebooks read this attribute.
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

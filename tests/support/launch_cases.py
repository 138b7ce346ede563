"""Cases of launch.options, made from launcher_options.json, that planner and pods check."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hvd_pods.shared.run import Run
from hvdchart.chart_files import read_data
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.spec.model import Spec
from hvdchart.spec.validate import find_contradictions
from tests.support.runs import make_run

# Names that no launcher has, names that only begin like an option, and words that are no option.
UNKNOWN = ["no-such-option", "npersocketx", "binding-arg", "bind", "Z", "NP", ""]
VALUES = ["1", "np", "bind-to=core", "--", "-", "-1", "=--np"]
# Words that look like options but may be arguments of the option before them.
LOOK_ALIKES = [
    ("--mca", "plm_rsh_args", "-q"),
    ("--mca", "plm_rsh_args", "-np"),
    ("--mca", "plm_rsh_args", "-q", "-np"),
    ("--mca=plm_rsh_args", "-np"),
    ("-genv", "A", "--gloo"),
    ("-genv", "A", "--gloo", "--gloo"),
    ("-x", "-genv"),
    ("--start-timeout", "--np", "4"),
    ("--report-bindings", "--hostfile"),
    ("--mca",),
    # Each option is of a launcher, but no launcher has all of them.
    ("-genv", "A", "--np", "-x", "A"),
    ("--mca", "-np", "-genv", "--report-bindings"),
    ("-x", "A", "--report-bindings", "--mca", "-q", "-genv"),
]
FORMS = ("-{}", "--{}", "--{}=1")


@dataclass(frozen=True)
class Case:
    """Launch options in a mode, the binding that they may contradict, and an interface."""

    mode: str
    options: tuple[str, ...]
    binding: str = "none"
    interface: str = ""

    def __str__(self) -> str:
        return f"{self.mode} {' '.join(self.options)} {self.binding} {self.interface}".strip()

    def spec(self) -> bytes:
        """Return a spec of one CPU group with these options."""
        node: dict[str, Any] = {"name": "x", "count": 2, "sockets": 2, "coresPerSocket": 4}
        spec = {
            "apiVersion": "hvdchart/v1",
            "image": {"repository": "a"},
            "name": "run",
            "nodes": [{**node, **({"interface": self.interface} if self.interface else {})}],
            "train": {"command": ["$(LAUNCH)"] if self.mode == "custom" else ["python"]},
            "launch": {"mode": self.mode, "options": self.options},
            **({"tuning": {"binding": self.binding}} if self.binding != "none" else {}),
        }
        return json.dumps(spec).encode()

    def plan(self) -> Plan:
        """Return the plan of that spec. Raises SpecError."""
        return make_plan(parse_spec(self.spec()))

    def is_refused_by_planner(self) -> bool:
        """Return whether the planner refuses the options, which it must do at their place in the
        spec.
        """
        spec = _spec(self.mode, self.binding)
        launch = dataclasses.replace(spec.launch, options=self.options)
        problems = list(find_contradictions(dataclasses.replace(spec, launch=launch)))
        assert all(path[:2] == ("launch", "options") for path, _, _ in problems), problems
        return bool(problems)

    def run(self) -> Run:
        """Return the run that the master gets."""
        numbers = {"core": (2, 0), "socket": (0, 1)}
        cores, per_socket = numbers.get(self.binding, (0, 0))
        binding = {"to": self.binding, "cores_per_rank": cores, "ranks_per_socket": per_socket}
        return make_run(
            mode=self.mode,
            args=["$(LAUNCH)"] if self.mode == "custom" else ["python"],
            options=list(self.options),
            binding=binding,
        )


@functools.cache
def _spec(mode: str, binding: str) -> Spec:
    return parse_spec(Case(mode, (), binding).spec())


def names() -> list[str]:
    """Return every option's name in the data file."""
    return [
        name for option in read_data("launcher_options.json")["options"] for name in option["names"]
    ]


def modes() -> dict[str, list[str]]:
    by_mode: dict[str, list[str]] = read_data("launcher_options.json")["modes"]
    return by_mode


def cases() -> Iterator[Case]:
    """Yield each option alone in each mode, form and setting; then lists of words."""
    for mode in modes():
        for index, name in enumerate([*names(), *UNKNOWN]):
            argument = FORMS[index % len(FORMS)].format(name)
            yield Case(mode, (argument, "value"))
            yield Case(mode, (argument,))
            if mode == "mpirun":
                yield Case(mode, ("value", argument), binding=("core", "socket")[index % 2])
        for value in VALUES:
            yield Case(mode, (value,), binding="none")
        for words in LOOK_ALIKES:
            yield Case(mode, words)

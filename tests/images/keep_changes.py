"""Changes models and optimizers of PyTorch between two commits, and looks for what was kept.

    python3 keep_changes.py FOLDER

Prints what is wrong with each case, or an empty text.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

os.environ.update(HVD_RUN_ID="one", HVD_KEEP=sys.argv[1])

import keep
import torch
from torch import nn

Part = Any


class Counts(nn.Module):  # type: ignore[misc]
    """It has a buffer that is another object after each step, and a state of its own."""

    seen: torch.Tensor
    hidden: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.steps = 0

    def step(self) -> None:
        self.seen = self.seen + 1
        self.hidden = self.hidden + 1
        self.steps += 1


class Extra(Counts):
    def get_extra_state(self) -> int:
        return self.steps

    def set_extra_state(self, state: int) -> None:
        self.steps = state


def model() -> nn.Sequential:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(4, 2))
    return network.to(memory_format=torch.channels_last)


def tied() -> nn.Sequential:
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    return network


def change_values(part: Part) -> None:
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.add_(1)


def replace_parameter(part: Part) -> None:
    part[2].weight = nn.Parameter(torch.full((2, 4), 7.0))


def replace_data(part: Part) -> None:
    part[2].weight.data = torch.full((5, 4), 7.0)


def replace_module(part: Part) -> None:
    part[2] = nn.Linear(4, 2)


def add_module(part: Part) -> None:
    part.add_module("late", nn.Linear(2, 2))


def rename(part: Part) -> None:
    part.other = part[2]
    del part[2]


def remove_bias(part: Part) -> None:
    part[2].bias = None


def hide_buffer(part: Part) -> None:
    part[1].register_buffer("running_mean", part[1].running_mean + 1, persistent=False)


def add_hook(part: Part) -> None:
    part._register_state_dict_hook(lambda _module, state, *_: state.update(more=torch.ones(1)))
    part.load_state_dict = lambda state: part.__dict__.update(loaded=float(state["more"]))


def step(part: Part) -> None:
    part.step()


def optimizer(make: Callable[[Any], Part]) -> Callable[[], Part]:
    def build() -> Part:
        part = make([*model().parameters()])
        step_of(part)
        return part

    return build


def step_of(part: Part) -> None:
    parameters = (parameter for group in part.param_groups for parameter in group["params"])
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, number + 1.0)
    part.step()


def change_options(part: Part) -> None:
    part.param_groups[0]["lr"] = 0.5


def add_group(part: Part) -> None:
    part.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.1})
    step_of(part)


def replace_state(part: Part) -> None:
    part.load_state_dict(part.state_dict())
    step_of(part)


def count_in_state(part: Part) -> None:
    part.state[part.param_groups[0]["params"][0]]["seen"] = 5


def adam(parameters: Any) -> Part:
    return torch.optim.Adam(parameters, 0.01)


CASES: dict[str, tuple[Callable[[], Part], Callable[[Part], None]]] = {
    "values": (model, change_values),
    "a parameter is replaced": (model, replace_parameter),
    "the data of a parameter is replaced": (model, replace_data),
    "a module is replaced": (model, replace_module),
    "a module is added": (model, add_module),
    "a module is renamed": (model, rename),
    "a bias is removed": (model, remove_bias),
    "a buffer is kept no longer": (model, hide_buffer),
    "a hook is added": (model, add_hook),
    "two modules have one parameter": (tied, change_values),
    "a module of TorchScript": (lambda: torch.jit.script(nn.Linear(3, 3)), change_values),
    "a buffer is another object": (Counts, step),
    "a state of a module's own": (Extra, step),
    "optimizer: a step of Adam": (optimizer(adam), step_of),
    "optimizer: a step of SGD": (
        optimizer(lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9)),
        step_of,
    ),
    "optimizer: without a state": (
        optimizer(lambda parameters: torch.optim.SGD(parameters, 0.1)),
        step_of,
    ),
    "optimizer: other options": (optimizer(adam), change_options),
    "optimizer: a new group": (optimizer(adam), add_group),
    "optimizer: a state that was loaded": (optimizer(adam), replace_state),
    "optimizer: a number in the state": (optimizer(adam), count_in_state),
}


def is_alike(state: Any, other: Any) -> bool:
    if isinstance(state, torch.Tensor):
        return bool(state.shape == other.shape and torch.equal(state, other))
    if isinstance(state, dict):
        return [*state] == [*other] and all(is_alike(state[key], other[key]) for key in state)
    if isinstance(state, (list, tuple)):
        return len(state) == len(other) and all(map(is_alike, state, other))
    return bool(state == other)


def find_difference(build: Callable[[], Part], change: Callable[[Part], None]) -> str:
    """What is wrong with a state that was committed before and after a change."""
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    part = build()
    state = keep.State(part=part)
    for _ in range(3):
        state.commit()
    change(part)
    state.commit()
    wanted = part.state_dict()
    del state
    keep.kept_state.states.clear()
    # Its tensors have other values until the state is there.
    again = build()
    change(again)
    if change in (change_values, step, step_of):
        change(again)
    step_of_state = keep.State(part=again).restore()
    keep.kept_state.states.clear()
    if step_of_state != 4:
        return f"continues after step {step_of_state}"
    return "" if is_alike(wanted, again.state_dict()) else f"{again.state_dict()} for {wanted}"


print("RESULT", json.dumps({name: find_difference(*case) for name, case in CASES.items()}))

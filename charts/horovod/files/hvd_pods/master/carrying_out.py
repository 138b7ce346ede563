"""Says beside each method which effect it carries out, and where: at once, or in a lane."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Optional, TypeVar

from hvd_pods.rules.effects import Effect
from hvd_pods.rules.events import Event

Owner = TypeVar("Owner")
EffectType = TypeVar("EffectType", bound=Effect)
Answer = TypeVar("Answer", bound=Optional[Event])
Carrier = Callable[[Owner, EffectType], Answer]
# The attribute of a marked method.
MARK = "carries_out"


class Method(NamedTuple):
    """A method that carries an effect out in a lane, or at once where `lane` is empty."""

    lane: str
    call: Callable[[Any], Event | None]


def carries_out(
    effect: type[EffectType], lane: str = ""
) -> Callable[[Carrier[Owner, EffectType, Answer]], Carrier[Owner, EffectType, Answer]]:
    """Mark the method that carries out the effects of a class.

    One that may take time is called in a lane (lanes.py), and the event that it returns is put on
    the loop's queue. One without a lane is called by the loop itself, and returns nothing.
    """

    def mark(
        method: Carrier[Owner, EffectType, Answer],
    ) -> Carrier[Owner, EffectType, Answer]:
        setattr(method, MARK, (effect, lane))
        return method

    return mark


def methods_of(owner: object) -> Mapping[type, Method]:
    """The marked methods of an object, by the class of effects that each carries out.

    A method that overrides a marked one carries out what that one does.
    """
    found = {}
    for base in type(owner).__mro__:
        for name, method in vars(base).items():
            if hasattr(method, MARK):
                effect, lane = getattr(method, MARK)
                found[effect] = Method(lane, getattr(owner, name))
    return found

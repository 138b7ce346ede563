"""A decorator that declares which effect a method carries out: at once, or in a work queue."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Optional, TypeVar

from hvd_pods.rules.effects import Effect
from hvd_pods.rules.events import Event

Owner = TypeVar("Owner")
EffectType = TypeVar("EffectType", bound=Effect)
Answer = TypeVar("Answer", bound=Optional[Event])
Carrier = Callable[[Owner, EffectType], Answer]
# The attribute of a marked method.
EFFECT_ATTRIBUTE = "carries_out"


class Method(NamedTuple):
    """A method that carries an effect out in a work queue, at once where that is empty."""

    work_queue: str
    call: Callable[[Any], Event | None]


def carries_out(
    effect: type[EffectType], work_queue: str = ""
) -> Callable[[Carrier[Owner, EffectType, Answer]], Carrier[Owner, EffectType, Answer]]:
    """Mark the method that carries out the effects of a class.

    A method that may take time runs in a work queue (work_queues.py), and the event that it returns
    is put on the loop's queue. A method without a work queue is called by the loop itself, and
    returns nothing.
    """

    def mark(
        method: Carrier[Owner, EffectType, Answer],
    ) -> Carrier[Owner, EffectType, Answer]:
        setattr(method, EFFECT_ATTRIBUTE, (effect, work_queue))
        return method

    return mark


def methods_of(owner: object) -> Mapping[type, Method]:
    """Return the marked methods of an object, by the class of their effects.

    A method that overrides a marked method carries out the same effect.
    """
    methods = {}
    for base in type(owner).__mro__:
        for name, method in vars(base).items():
            if hasattr(method, EFFECT_ATTRIBUTE):
                effect, work_queue = getattr(method, EFFECT_ATTRIBUTE)
                methods[effect] = Method(work_queue, getattr(owner, name))
    return methods

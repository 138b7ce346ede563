"""Lets a process import its framework without garbage collections; run at the start of the image's
Python.

Importing TensorFlow and Horovod makes some 420,000 objects that stay, and Python goes over them
again and again: a fifth of the CPU time of the import (docs/images.md has the figures). So the
first collection waits for a million objects, or for gc.collect(); from then on Python's own rule
holds. A script that sets its own thresholds keeps them.
"""

import gc

_FIRST = 1_000_000
_USUAL = gc.get_threshold()


def _back_to_usual(phase: str, info: object) -> None:
    if gc.get_threshold()[0] == _FIRST:
        gc.set_threshold(*_USUAL)


if gc.isenabled():
    gc.set_threshold(_FIRST, *_USUAL[1:])
    gc.callbacks.append(_back_to_usual)

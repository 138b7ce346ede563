"""Delays the first garbage collection, so that importing a framework takes less CPU time. The
image's Python runs this at every start.

Importing TensorFlow and Horovod creates about 420,000 permanent objects, and visiting them again in
each collection takes a fifth of the import's CPU time (figures: docs/images.md). The first
collection therefore waits for a million objects, or for gc.collect(); then Python's own thresholds
apply. Thresholds that a script sets stay in force.
"""

import gc

_FIRST = 1_000_000
_USUAL = gc.get_threshold()


def _restore_thresholds(phase: str, info: object) -> None:
    if gc.get_threshold()[0] == _FIRST:
        gc.set_threshold(*_USUAL)


if gc.isenabled():
    gc.set_threshold(_FIRST, *_USUAL[1:])
    gc.callbacks.append(_restore_thresholds)

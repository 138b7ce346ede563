"""Takes the garbage collector away from the objects that importing a framework creates. The image's
Python runs this at every start.

Importing TensorFlow and Horovod creates about 440,000 permanent objects. To visit them in each
collection takes a fifth of the import's CPU time, a quarter of a second in each full collection of
a training, for which all other ranks wait, and a second when Python ends (figures: docs/images.md).
The first collection therefore waits for a million objects, or for gc.collect(); then Python's own
thresholds apply. Thresholds that a script sets stay in force. Once the framework is imported,
collections leave out what there is by then.
"""

import gc
import sys

_FIRST = 1_000_000
_USUAL = gc.get_threshold()


def _restore_thresholds(phase: str, info: object) -> None:
    if gc.get_threshold()[0] == _FIRST:
        gc.set_threshold(*_USUAL)


class _Freezing:
    """Finds frameworks where Python's own finder does."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name not in ("tensorflow", "torch"):
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_freeze(module: object) -> None:
            execute(module)  # type: ignore[arg-type]
            gc.freeze()

        spec.loader.exec_module = execute_and_freeze  # type: ignore[method-assign]
        return spec


if gc.isenabled():
    gc.set_threshold(_FIRST, *_USUAL[1:])
    gc.callbacks.append(_restore_thresholds)
    sys.meta_path.insert(0, _Freezing)  # type: ignore[arg-type]

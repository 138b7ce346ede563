"""Keeps garbage collections from visiting the objects that importing a framework creates. The
image's Python runs this at every start.

Importing TensorFlow creates about 440,000 permanent objects. Collections during the import take a
fifth of its CPU time; afterwards each full collection would take a quarter of a second, for which
the other ranks wait, and the end of Python a second or two (figures: docs/images.md). The first
collection therefore waits for a million objects, or for gc.collect(). Once a framework is imported,
collections leave out all objects that exist by then. From either moment on, Python's own thresholds
apply. Thresholds that a script sets stay in force.
"""

import gc
import sys

_FIRST = 1_000_000
_USUAL = gc.get_threshold()


def _restore_thresholds(phase: str, info: object) -> None:
    if gc.get_threshold()[0] == _FIRST:
        gc.set_threshold(*_USUAL)


class _Freezing:
    """Finds a framework where Python's own finder does."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name not in ("tensorflow", "torch"):
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name)
        loader = spec.loader if spec else None
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None or not hasattr(loader, "__dict__"):
            return None

        def execute_and_freeze(module: object) -> None:
            # A zip file has one loader for all its modules.
            vars(loader).pop("exec_module", None)
            execute(module)
            gc.freeze()
            _restore_thresholds("", None)

        vars(loader)["exec_module"] = execute_and_freeze
        return spec


if gc.isenabled():
    gc.set_threshold(_FIRST, *_USUAL[1:])
    gc.callbacks.append(_restore_thresholds)
    sys.meta_path.insert(0, _Freezing)  # type: ignore[arg-type]

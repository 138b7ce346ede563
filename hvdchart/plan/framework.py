"""The framework that the ranks reduce with, from the spec or its code, and its effects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hvdchart.plan.framework_signs import STRATEGYS_VARIABLE, Signs, find_signs
from hvdchart.plan.rules import FROM_HVDCHART, Reason, override_reason
from hvdchart.plan.user_code import sources_of
from hvdchart.spec.model import Spec

# The way to let the ranks of a program train one model, by the library that trains it.
_BY_TORCH = (
    "add `torch.distributed.init_process_group()`, and wrap the model in DistributedDataParallel; "
    "`hvdchart init` writes such a script"
)
_BY_JAX = "add `jax.distributed.initialize()` before anything else of JAX"
_BY_HOROVOD = (
    "add Horovod's `hvd.init()` and its DistributedOptimizer, in an image with Horovod; "
    "`hvdchart init --template keras` writes such a script"
)
_JOINED_BY = {"torch": _BY_TORCH, "jax": _BY_JAX, "flax": _BY_JAX}
# The modules that a worker imports in advance. Both survive a fork: they start no threads before
# their first use.
_PRELOAD = {"torch": ("torch",), "jax": ("jax",)}


@dataclass(frozen=True)
class Framework:
    """The framework that the ranks reduce with (None if unknown), and the planned keys of `launch`.

    `broken` lists the files of the program that are no Python of this version: the problem of each,
    by the file's name. `alone` says why each rank trains a model of its own, and `remedy` says how
    to join the ranks; both are empty if unknown. `nccl` is the place that chooses NCCL.
    `meets_locally` is the code that makes the ranks connect to an address that is local to each
    worker. `saves_in_pod` is the code that saves to a folder that ends with the pod. All three are
    empty if there is no such code.
    """

    name: str | None
    mode: str
    preload: tuple[str, ...]
    reasons: Mapping[str, Reason]
    broken: Mapping[str, str]
    alone: str
    remedy: str
    nccl: str
    meets_locally: str
    saves_in_pod: str


def plan_framework(spec: Spec) -> Framework:
    """Choose the framework of a spec, and from it the launch mode and imports in advance.

    The spec's own choice takes precedence over the code in its `values`, if there is any.
    """
    sources = sources_of(spec.values.get("code"))
    signs = find_signs(sources, spec.train.command)
    name = spec.train.framework
    reason = override_reason("train.framework")
    if name is None:
        name, because = _choose(sources, signs)
        reason = Reason(because, FROM_HVDCHART)
    reasons = {"framework": reason, "preload": reason}
    mode = spec.launch.mode
    if mode is None:
        mode, reasons["mode"] = _choose_mode(spec, name, reason, signs)
    preload: tuple[str, ...] = ()
    if name is not None and not any(group.gpus for group in spec.nodes):
        preload = _PRELOAD.get(name, ())
    alone = "" if signs.broken else _explain_lone_ranks(spec, sources, signs)
    return Framework(
        name=name,
        mode=mode,
        preload=preload,
        reasons=reasons,
        broken=signs.broken,
        alone=alone,
        remedy=_remedy(signs) if alone else "",
        nccl=signs.nccl,
        meets_locally=signs.meets_locally,
        saves_in_pod=signs.saves_in_pod,
    )


def _choose_mode(
    spec: Spec, framework: str | None, reason: Reason, signs: Signs
) -> tuple[str, Reason]:
    """Return the launch mode of a framework that has this reason, and the reason for the mode."""
    # Options are for mpirun.
    if framework not in _PRELOAD or spec.launch.options:
        return "mpirun", reason
    # If PyTorch was compiled with MPI, each rank that mpirun did not start trains alone.
    with_mpi = signs.mpi_backend
    if not with_mpi and signs.prefers_mpi and not all(group.gpus for group in spec.nodes):
        with_mpi = str(signs.prefers_mpi)
    if with_mpi:
        return "mpirun", Reason(f"{with_mpi}, which may use MPI", FROM_HVDCHART)
    return "direct", reason


def _remedy(signs: Signs) -> str:
    """Explain how to join the ranks of a program with these signs."""
    if signs.strategy:
        return f"set it, or {_BY_HOROVOD}"
    module = signs.trains.module.partition(".")[0] if signs.trains else ""
    return _JOINED_BY.get(module, _BY_HOROVOD)


def _explain_lone_ranks(spec: Spec, sources: Mapping[str, bytes], signs: Signs) -> str:
    """Explain why each rank of such a program trains a model of its own; empty if unknown."""
    is_given = spec.train.framework or spec.launch.mode == "custom"
    if is_given or signs.joined_by or not signs.trains:
        return ""
    if signs.strategy:
        is_set = STRATEGYS_VARIABLE in spec.train.env or signs.names_strategys_variable
        needed = f"{signs.strategy}, which needs {STRATEGYS_VARIABLE}, and nothing sets that"
        return "" if is_set else needed
    words = (word.removeprefix("./") for word in spec.train.command)
    file = next((word for word in words if word in sources), "the code")
    return f"nothing in {file} joins the ranks"


def _choose(sources: Mapping[str, bytes], signs: Signs) -> tuple[str | None, str]:
    """Return the framework of a program with these signs, and why; None if it is not certain.

    Horovod takes precedence over the others, because its scripts use parts of those. A program
    starts without MPI only if its code has no text about Horovod: a module may be imported by its
    name.
    """
    used = signs.frameworks
    if "horovod" in used:
        return "horovod", str(used["horovod"])
    if used and signs.mpi_backend:
        return "mpi", signs.mpi_backend
    if len(used) != 1:
        return None, "the code does not say it"
    ((name, use),) = used.items()
    if name in _PRELOAD:
        for file, text in sources.items():
            if b"horovod" in text.lower():
                return None, f"{file} mentions Horovod"
    return name, str(use)

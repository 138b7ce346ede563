"""Converts values of Intel's Transfer Learning Tool chart (docker/tlt_tf_k8s/chart).

The chart's template started its own program with horovodrun; the values are its arguments.
"""

from __future__ import annotations

from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import RUN_AS_ROOT
from hvdchart.migrate.volumes import Volumes
from hvdchart.spec.yaml_tree import Plain

NAME = "Intel's Transfer Learning Tool chart"
MARKS = (
    ("imageName",), ("imageTag",), ("batchDenom",), ("workerResources",), ("pvcName",),
    ("useCase",), ("datasetName",), ("scaling",), ("pvcScn",), ("pvcResources",),
)  # fmt: skip
_PROGRAM = "/tmp/intel-transfer-learning/tlt/distributed/tensorflow/run_train_tf.py"  # noqa: S108
_DATA, _OUTPUT = "/tmp/data", "/tmp/output"  # noqa: S108  paths in the image, not of this process
# The program's arguments, in the order of the template: from a value, or fixed.
_ARGUMENTS: tuple[tuple[str, str], ...] = (
    ("--batch_denom", "batchDenom"), ("--batch_size", "batchSize"), ("--dataset-dir", _DATA),
    ("--dataset-name", "datasetName"), ("--epochs", "epochs"), ("--model-name", "modelName"),
    ("--output-dir", _OUTPUT), ("--scaling", "scaling"), ("--shuffle", ""),
    ("--use-case", "useCase"),
)  # fmt: skip


def migrate_tlt(ledger: Ledger) -> tuple[str, str]:
    """Fill in the values and entries of a TLT values file; returns release and namespace."""
    for key, part in (("imageName", "repository"), ("imageTag", "tag")):
        ledger.carry_over((key,), ("image", part), "", ledger.text_at(key))
    workers = ledger.integer_at("workers")
    if workers is None:
        raise ledger.error((), "the key workers is missing", "the number of workers")
    slots = ledger.integer_at("slotsPerWorker") or 1
    ledger.put(("launch", "mode"), "horovodrun", ("workers",))
    # The template started as many ranks as workers, which filled the slots of the first workers.
    number = -(-workers // slots)
    reason = f"{workers} ranks, as before" if slots > 1 else ""
    ledger.put(("worker", "number"), number, ("workers",))
    ledger.carry_over(("workers",), ("worker", "number"), reason, number)
    ledger.put(("worker", "slots"), slots, ("slotsPerWorker",))
    ledger.carry_over(("slotsPerWorker",), ("worker", "slots"), "", slots)
    if workers % slots:
        raise ledger.error(("workers",), f"{workers} ranks do not fill hosts of {slots} slots",
                           "a multiple of slotsPerWorker")  # fmt: skip
    _carry_over_program(ledger)
    for old, new in (("resources", "master"), ("workerResources", "worker")):
        limits: dict[str, Plain] = {
            key: value for key, value in ledger.map_at(old).items() if value is not None
        }
        if limits:
            ledger.put((new, "resources"), {"limits": limits}, (old,))
            ledger.change((old,), (new, "resources"), "as limits")
    _carry_over_claims(ledger)
    name, namespace = ledger.text_at("metadata", "name"), ledger.text_at("metadata", "namespace")
    if name:
        reason = "the name of the release"
        ledger.change(("metadata", "name"), ("helm install NAME",), reason)
    if namespace:
        ledger.change(("metadata", "namespace"), ("helm --namespace",), "an option of Helm")
    ledger.add_check(f"the pods ran as the image's user, often root; {RUN_AS_ROOT}")
    ledger.close(NAME)
    return f"tf-{name}" if name else "", namespace


def _carry_over_program(ledger: Ledger) -> None:
    words = ["python", _PROGRAM, "--k8"]
    for option, key in _ARGUMENTS:
        if not key or key.startswith("/"):
            words += [option, key] if key else [option]
            continue
        text = ledger.text_at(key)
        if not text:
            problem = f"the key {key} is missing, and the program has no default for it"
            raise ledger.error((key,) if ledger.has((key,)) else (), problem, "a value")
        words += [option, text]
        ledger.change((key,), ("master", "args"), f"the argument {option}")
    ledger.put(("master", "args"), words, ())
    ledger.put(("launch", "options"), ["--verbose"], ())
    ledger.add_check(
        f"the image has its program below /tmp ({_PROGRAM}), where pods of this chart have an "
        "empty directory: copy it elsewhere in the image and correct master.args"
    )


def _carry_over_claims(ledger: Ledger) -> None:
    claim = ledger.text_at("pvcName")
    if claim:
        volumes = Volumes(ledger)
        for name, path in (("data", _DATA), ("output", _OUTPUT)):
            claims = {"claimName": f"{claim}-{name}"}
            volume = {"name": f"{name}-dir", "persistentVolumeClaim": claims}
            volumes.add_pair(("pvcName",), volume, {"name": f"{name}-dir", "mountPath": path})
        volumes.put(("pvcName",))
    for key in ("pvcScn", "pvcResources"):
        if ledger.has((key,)):
            ledger.drop((key,), "this chart makes no claims")
            names = f"{claim}-data and {claim}-output"
            ledger.add_check(f"create the claims {names} first: this chart makes none")

"""The life of a cluster: up, down, status."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.common.cache import content_key
from devtools.common.files import write_atomic
from devtools.common.ui import note, step
from devtools.localkube import config, debian, pki, preflight
from devtools.localkube.boot import Boot, clear_leftovers
from devtools.localkube.health import Health, health
from devtools.localkube.instance import Instance, current
from devtools.localkube.node_setup import CNI_RESULTS
from devtools.localkube.oci import pack_program
from devtools.localkube.procs import boot_id
from devtools.localkube.record import Record
from devtools.toolchain.tools import tool


def up(instance: Instance | None = None) -> Path:
    """Makes the cluster run, whatever state it was left in, and returns its kubeconfig's path.

    Builds and installs what is missing. A cluster that is healthy is left alone. One that crashed
    is started again with what it held, unless the machine was started anew since or localkube
    itself has changed: then it is made anew. Raises LocalkubeError before anything is started when
    the machine cannot run it.
    """
    instance = instance or current()
    preflight.check_machine()
    with _alone(instance):
        if health(instance).healthy:
            changed = (
                "" if _is_same(instance) else " (by another localkube; `down` first to renew it)"
            )
            note(f"cluster {instance.name!r} is up already{changed}: {instance.kubeconfig}")
            return instance.kubeconfig
        kube, coredns = tool("kube"), tool("coredns")
        tool("pause")
        debian.install_missing()
        clear_leftovers(instance)
        preflight.check_network(instance)
        preflight.check_space(instance)
        preflight.check_file_system(instance)
        _prepare_state(instance)
        with step(f"start cluster {instance.name!r}"):
            Boot(instance, kube, coredns).run()
    return instance.kubeconfig


def down(instance: Instance | None = None, *, images: bool = False) -> bool:
    """Stops the cluster and removes its state; its image store too when `images` is set.

    Returns False when there was nothing to stop or remove. Only processes that `up` started are
    touched.
    """
    instance = instance or current()
    preflight.check_machine()
    with _alone(instance):
        record = Record.read(instance)
        was_there = instance.state.exists() or (record is not None and record.init.is_alive())
        clear_leftovers(instance)
        for directory in (
            instance.state,
            instance.run,
            *([instance.store.parent] if images else []),
        ):
            if directory.exists():
                shutil.rmtree(directory)
    _remove_if_last(instance)
    return was_there


def status(instance: Instance | None = None) -> Health:
    """How the cluster is. Asks the components themselves; changes nothing."""
    return health(instance or current())


@contextmanager
def _alone(instance: Instance) -> Iterator[None]:
    """Keeps two commands from working on one cluster at once; the second waits."""
    lock = instance.run.parent / f"{instance.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _made_by(instance: Instance) -> dict[str, str]:
    """What state depends on: it is not carried over a reboot, nor over a change of localkube."""
    programs = str(tool("kube")), str(tool("coredns"))
    return {"boot": boot_id(), "key": content_key([Path(__file__).parent], *programs)}


def _is_same(instance: Instance) -> bool:
    path = instance.state / "made-by.json"
    return path.exists() and json.loads(path.read_text()) == _made_by(instance)


def _prepare_state(instance: Instance) -> None:
    if not _is_same(instance):
        if instance.state.exists():
            shutil.rmtree(instance.state)
        pki.write_all(instance)
    for directory in (instance.logs, instance.run, instance.store):
        directory.mkdir(parents=True, exist_ok=True)
    instance.state.chmod(0o700)
    pack_program(config.PAUSE_IMAGE, tool("pause"), instance.state / config.PAUSE_ARCHIVE)
    for path, text in config.files(instance).items():
        write_atomic(path, text.encode())
    write_atomic(instance.state / "made-by.json", json.dumps(_made_by(instance)).encode())


def _remove_if_last(instance: Instance) -> None:
    """Removes the directories that all clusters share, once none is left.

    Not before: removing a directory also removes what another cluster has mounted on it. Another
    cluster may come or go meanwhile, so it is the removal itself that tells.
    """
    try:
        instance.state.parent.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return
    results = Path(CNI_RESULTS)
    if results.is_dir() and not any(results.iterdir()):
        results.rmdir()

"""Starts, stops and checks a cluster: up, down, status."""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from devtools.common.cache import content_key
from devtools.common.locks import exclusive_lock
from devtools.common.ui import note, step
from devtools.localkube import config, debian, pki, preflight
from devtools.localkube.boot import Boot, clear_leftovers
from devtools.localkube.health import Health, health
from devtools.localkube.instance import Instance, current
from devtools.localkube.node_setup import CNI_RESULTS
from devtools.localkube.oci import pack_program
from devtools.localkube.record import Record, boot_id
from devtools.toolchain.tools import tool
from hvdchart.files import write_atomically


def up(instance: Instance | None = None) -> Path:
    """Starts the cluster from whatever state it was left in, and returns its kubeconfig's path.

    Builds and installs what is missing. A healthy cluster is not changed. One that crashed starts
    again with all its objects, unless the machine was rebooted or localkube has changed since: then
    it starts empty. Raises LocalkubeError before anything is started when the machine cannot run
    it, and ToolError when a program cannot be built.
    """
    instance = instance or current()
    preflight.check_machine()
    with _locked(instance):
        if health(instance).healthy:
            outdated = (
                ""
                if _state_is_current(instance)
                else " (started by another version of localkube; run `down` first to replace it)"
            )
            note(f"cluster {instance.name!r} is running{outdated}: {instance.kubeconfig}")
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
    """Stops the cluster and removes its state, and with `images` also its image store.

    Returns False when there was nothing to stop or remove. Only processes that `up` started are
    stopped.
    """
    instance = instance or current()
    preflight.check_machine()
    with _locked(instance):
        record = Record.read(instance)
        existed = instance.state.exists() or (record is not None and record.init.is_alive())
        clear_leftovers(instance)
        for directory in (
            instance.state,
            instance.run,
            *([instance.store.parent] if images else []),
        ):
            if directory.exists():
                shutil.rmtree(directory)
    _remove_shared_directories(instance)
    return existed


def status(instance: Instance | None = None) -> Health:
    """The cluster's health, as its components report it."""
    return health(instance or current())


def _locked(instance: Instance) -> AbstractContextManager[None]:
    """Keeps two commands from starting or stopping one cluster at once; the second waits."""
    task = f"starting or stopping cluster {instance.name!r}"
    return exclusive_lock(instance.run.parent / f"{instance.name}.lock", task)


def _made_by() -> dict[str, str]:
    """What the state depends on: it is not used after a reboot or a change of localkube."""
    programs = str(tool("kube")), str(tool("coredns"))
    return {"boot": boot_id(), "key": content_key([Path(__file__).parent], *programs)}


def _state_is_current(instance: Instance) -> bool:
    path = instance.state / "made-by.json"
    return path.exists() and json.loads(path.read_text()) == _made_by()


def _prepare_state(instance: Instance) -> None:
    if not _state_is_current(instance):
        if instance.state.exists():
            shutil.rmtree(instance.state)
        instance.state.mkdir(mode=0o700, parents=True)
        pki.write_all(instance)
    for directory in (instance.logs, instance.run, instance.store):
        directory.mkdir(parents=True, exist_ok=True)
    pack_program(config.PAUSE_IMAGE, tool("pause"), instance.state / config.PAUSE_ARCHIVE)
    for path, text in config.files(instance).items():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text)
    write_atomically(instance.state / "made-by.json", json.dumps(_made_by()))


def _remove_shared_directories(instance: Instance) -> None:
    """Removes the directories that all clusters share, unless another cluster exists.

    Removing a directory would also remove what another cluster has mounted on it. Another cluster
    may start or stop meanwhile, so the attempt to remove the parent directory is the check.
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

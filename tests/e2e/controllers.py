"""Controllers of other projects, as processes of this machine beside the local cluster."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devtools.localkube import instance
from devtools.localkube.pki import Authority
from tests.e2e.cluster import Namespace
from tests.ports import find_port
from tests.waiting import wait_until


@dataclass(frozen=True)
class WebhookServer:
    """Where a controller serves its webhooks: `folder` has the key and the certificate for them."""

    folder: Path
    port: int
    authority: bytes

    @classmethod
    def make(cls, folder: Path) -> WebhookServer:
        """Issue a certificate for this machine's address in the cluster's network."""
        authority = Authority("webhooks of tests")
        pair = authority.issue("webhooks", hosts=[str(instance.current().gateway_ip)])
        folder.mkdir(exist_ok=True)
        (folder / "tls.key").write_bytes(pair.key)
        (folder / "tls.crt").write_bytes(pair.certificate)
        return cls(folder, find_port(), authority.certificate)

    @contextmanager
    def registered(
        self, owner: Namespace, manifests: Path, kinds: Collection[str], labels: Mapping[str, str]
    ) -> Iterator[None]:
        """Let the API server call the webhooks of a project's manifests until the end of the block.

        kinds: only webhooks of these resources. labels: those of the namespaces that they are for.
        """
        made = [
            self._of_this_machine(manifest, kinds, labels)
            for manifest in yaml.safe_load_all(manifests.read_text())
        ]
        try:
            for manifest in made:
                owner.apply(manifest)
            yield
        finally:
            for manifest in made:
                owner.kubectl("delete", manifest["kind"], manifest["metadata"]["name"])

    def _of_this_machine(
        self, manifest: Any, kinds: Collection[str], labels: Mapping[str, str]
    ) -> dict[str, Any]:
        chosen = []
        for webhook in manifest["webhooks"]:
            if not any(kind in rule["resources"] for rule in webhook["rules"] for kind in kinds):
                continue
            path = webhook["clientConfig"]["service"]["path"]
            client = {
                "url": f"https://{instance.current().gateway_ip}:{self.port}{path}",
                "caBundle": b64encode(self.authority).decode(),
            }
            selector = {"matchLabels": dict(labels)}
            chosen.append({**webhook, "clientConfig": client, "namespaceSelector": selector})
        return {**manifest, "webhooks": chosen}


@contextmanager
def running(
    command: list[str], environment: Mapping[str, str], log: Path, ready: str
) -> Iterator[None]:
    """Run a controller until the end of the block; `ready` is in its log once it has started."""
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

        def is_ready() -> bool:
            text = log.read_text(errors="replace")
            assert process.poll() is None, text[-5000:]
            return ready in text

        try:
            wait_until(is_ready, 120, f"{command[0]} is ready")
            yield
        finally:
            process.terminate()
            process.wait(60)


def install_crds(owner: Namespace, folder: Path) -> None:
    """Apply all CRDs of a folder, and wait until the API server serves them."""
    for path in sorted(folder.glob("*.yaml")):
        owner.kubectl("apply", "--server-side", "--filename", str(path))
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest:
                name = manifest["metadata"]["name"]
                owner.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")


def conditions(item: Mapping[str, Any]) -> dict[str, str]:
    """The conditions of an object that are true, with their reasons."""
    listed = item.get("status", {}).get("conditions", [])
    return {each["type"]: each.get("reason", "") for each in listed if each["status"] == "True"}

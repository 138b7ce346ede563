"""Third-party controllers beside the local cluster: processes of this machine with their CRDs and
their webhooks, which the API server reaches at this machine. Webhooks get objects of one namespace
only.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from devtools.common.waiting import wait_until
from devtools.localkube.instance import current_instance
from devtools.localkube.pki import Authority
from devtools.toolchain.tools import tool
from tests.support.namespace import Namespace

# The folder below TMPDIR in which controllers of controller-runtime look for their certificate.
CERTIFICATES = "k8s-webhook-server/serving-certs"
# Features of controller-runtime that are not needed here.
ALONE = {
    "leaderElection": {"leaderElect": False},
    "metrics": {"bindAddress": "0"},
    "health": {"healthProbeBindAddress": "0"},
}


class Controller(NamedTuple):
    """A program of devtools/toolchain and its settings.

    crds: files with one CustomResourceDefinition each, which are applied before it starts.
    ready: the text of its log when it works.
    command: the words before the program.
    webhooks: a file with its webhook configurations; None when it has none.
    kinds: the resources, such as pods, whose webhooks are used; all when it is empty.
    port: the port of its webhooks.
    config: the content of the file for its option --config; None without that option.
    """

    program: str
    crds: Sequence[Path] = ()
    ready: Sequence[str] = ("Serving webhook server", "Starting workers")
    arguments: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    webhooks: Path | None = None
    kinds: Collection[str] = ()
    port: int = 0
    config: dict[str, Any] | None = None


@contextmanager
def running(
    namespace: Namespace, controllers: Sequence[Controller], folder: Path | None = None
) -> Iterator[None]:
    """Run controllers in a block, with their files in `folder`, or in a temporary one for None.

    The block begins when all of them work. Raises AssertionError after a minute, or, with the log
    of the controller, when one has ended. Their CustomResourceDefinitions stay in the cluster.
    """
    authority = Authority("controllers")
    host = str(current_instance().gateway_ip)
    with tempfile.TemporaryDirectory(prefix="hvd-peers-") as path, ExitStack() as stack:
        folder = folder or Path(path)
        pair = authority.issue("webhooks", hosts=[host])
        certificates = folder / CERTIFICATES
        certificates.mkdir(parents=True)
        (certificates / "tls.crt").write_bytes(pair.certificate)
        (certificates / "tls.key").write_bytes(pair.key)
        for controller in controllers:
            for crd in controller.crds:
                namespace.kubectl("apply", "--server-side", "--filename", str(crd))
                # `--for=condition` fails where a new CRD has no conditions yet; this form waits.
                named = yaml.safe_load(crd.read_text())
                kind = named["spec"]["names"]["kind"]
                name = named["metadata"]["name"]
                accepted = f"--for=jsonpath={{.status.acceptedNames.kind}}={kind}"
                namespace.kubectl("wait", accepted, f"crd/{name}", "--timeout=60s")
            stack.enter_context(_process(namespace, controller, folder, host))
        for controller in controllers:
            if controller.webhooks:
                stack.enter_context(_webhooks(namespace, controller, host, authority.certificate))
        yield


@contextmanager
def _process(
    namespace: Namespace, controller: Controller, folder: Path, host: str
) -> Iterator[None]:
    """Start one controller and wait until it works. The end of the block ends it."""
    arguments = [*controller.arguments]
    if controller.config:
        config = folder / f"{controller.program}.yaml"
        served = {**controller.config.get("webhook", {}), "host": host, "port": controller.port}
        config.write_text(json.dumps({**controller.config, "webhook": served}))
        arguments.append(f"--config={config}")
    path = folder / f"{controller.program}.log"
    with path.open("w") as log:
        process = subprocess.Popen(
            [*controller.command, str(tool(controller.program)), *arguments],
            env={**namespace.environment(), "TMPDIR": str(folder), **controller.environment},
            stdout=log,
            stderr=log,
        )

    def works() -> bool:
        text = path.read_text()
        assert process.poll() is None, text
        return all(words in text for words in controller.ready)

    try:
        wait_until(works, 60, f"{controller.program} works; its log: {path}")
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _webhooks(
    namespace: Namespace, controller: Controller, host: str, authority: bytes
) -> Iterator[None]:
    """Create the webhooks of a controller; objects of other namespaces do not use them."""
    assert controller.webhooks
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    documents = list(yaml.safe_load_all(controller.webhooks.read_text()))
    names = []
    for document in documents:
        document["webhooks"] = [
            hook for hook in document["webhooks"] if _is_for(hook, controller.kinds)
        ]
        document["metadata"]["name"] = f"hvd-bench-{controller.program}"
        names.append(f"{document['kind'].lower()}/hvd-bench-{controller.program}")
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://{host}:{controller.port}{path}",
                "caBundle": b64encode(authority).decode(),
            }
            webhook["namespaceSelector"] = here
            if controller.program == "jobset" and webhook["rules"][0]["resources"] == ["pods"]:
                # As in JobSet's own installation.
                key = "jobset.sigs.k8s.io/jobset-name"
                exists = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
                webhook["objectSelector"] = exists
    namespace.apply({"apiVersion": "v1", "kind": "List", "items": documents})
    try:
        yield
    finally:
        namespace.kubectl("delete", *names)


def _is_for(webhook: dict[str, Any], kinds: Collection[str]) -> bool:
    return not kinds or any(
        kind in rule["resources"] for rule in webhook["rules"] for kind in kinds
    )

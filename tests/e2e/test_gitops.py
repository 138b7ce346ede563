"""The objects of docs/gitops.md, followed by Flux. Rare: its controllers are built first.

They run here, beside the local cluster, and read the chart from a git server of the test. The story
is that of a team: install, change by hand, a finished run that is left alone, another chart, and
another value.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.common.errors import DevtoolsError
from devtools.toolchain.tools import HELM_CONTROLLER, SOURCE_CONTROLLER, module_folder
from tests.chart.test_custom_resources import documented
from tests.controllers import Controller, running
from tests.e2e.cluster import CHART, Namespace, Values, on_shared_cores
from tests.e2e.volumes import on_node
from tests.ports import find_port
from tests.waiting import PROGRAM_PAUSE, wait_until

pytestmark = pytest.mark.rare

# The release's name on the page.
RELEASE = "resnet50"
BRANCH = "main"


@dataclass(frozen=True)
class Repository:
    """A git repository with the chart, as teams have it."""

    folder: Path

    def git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        subprocess.run(["git", *identity, "-C", str(self.folder), *arguments], check=True)

    @classmethod
    def make(cls, folder: Path) -> Repository:
        shutil.copytree(CHART, folder / "charts" / "horovod")
        made = cls(folder)
        made.git("init", "--quiet", f"--initial-branch={BRANCH}")
        made.git("add", "--all")
        made.git("commit", "--quiet", "--message=chart")
        return made

    def bump_chart(self) -> None:
        """Commit another version of the chart, whose objects are the same but for that."""
        file = self.folder / "charts" / "horovod" / "Chart.yaml"
        yaml = YAML()
        chart = yaml.load(file)
        chart["version"] = f"{chart['version']}+bumped"
        yaml.dump(chart, file)
        self.git("commit", "--quiet", "--all", "--message=chart: another version")


class GitHandler(http.server.BaseHTTPRequestHandler):
    """Serves fetches from the repository below `root` by git's own program for web servers."""

    def __init__(self, root: Path, *arguments: Any) -> None:
        self._root = root
        super().__init__(*arguments)

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        variables = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self._root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }  # fmt: skip
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=variables, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer  # noqa: N815, the names that the base class calls

    def log_message(self, *arguments: object) -> None:
        """Say nothing: the test looks at what the controllers make of it."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a git repository, until the end of the block."""
    handler = partial(GitHandler, folder.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{folder.name}/.git"
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Flux:
    """A release that Flux keeps, as the page has it. `values` go into the page's own object."""

    namespace: Namespace
    url: str

    def apply(self, values: Values) -> None:
        source = documented("GitRepository")
        source["spec"].update(url=self.url, ref={"branch": BRANCH})
        release = documented("HelmRelease")
        repository, _, tag = self.namespace.image.rpartition(":")
        image = {"image": {"repository": repository, "tag": tag}}
        release["spec"]["values"] = {**release["spec"]["values"], **image, **values}
        for manifest in (source, release):
            manifest["metadata"]["namespace"] = self.namespace.name
            self.namespace.apply(manifest)

    def sync(self) -> None:
        """Let Flux look at the repository and the cluster once more, and wait for its end."""
        for kind in ("gitrepository", "helmrelease"):
            (item,) = self.namespace.get(kind)["items"]
            # `flux reconcile` does the same.
            token = f"{item['metadata']['resourceVersion']}-{item['metadata']['generation']}"
            name = item["metadata"]["name"]
            self.namespace.kubectl(
                "annotate", kind, name, "--overwrite", f"reconcile.fluxcd.io/requestedAt={token}"
            )
            handled = f"--for=jsonpath={{.status.lastHandledReconcileAt}}={token}"
            self.namespace.kubectl("wait", kind, name, handled, "--timeout=120s")
            self.namespace.kubectl("wait", kind, name, "--for=condition=Ready", "--timeout=120s")

    def remove(self) -> None:
        self.namespace.kubectl("delete", "helmrelease", RELEASE, "--timeout=120s")


@contextmanager
def running_flux(namespace: Namespace, folder: Path) -> Iterator[None]:
    artifacts = f"127.0.0.1:{find_port()}"
    own = {
        SOURCE_CONTROLLER: (
            f"--storage-path={folder / 'artifacts'}", f"--storage-addr={artifacts}",
            f"--storage-adv-addr={artifacts}",
        ),
        HELM_CONTROLLER: (),
    }  # fmt: skip
    (folder / "artifacts").mkdir()
    controllers = [
        Controller(
            module.rpartition("/")[2],
            crds=sorted((module_folder("flux", module) / "config/crd/bases").glob("*.yaml")),
            ready=["Starting workers"],
            arguments=[
                "--watch-all-namespaces=false", "--enable-leader-election=false", *options,
                *(f"--{what}-addr=127.0.0.1:{find_port()}" for what in ("metrics", "health")),
            ],
            environment={"RUNTIME_NAMESPACE": namespace.name},
        )
        for module, options in own.items()
    ]  # fmt: skip
    with running(namespace, controllers, folder):
        yield


@pytest.fixture
def flux(namespace: Namespace, tmp_path: Path) -> Iterator[Flux]:
    """Flux, which runs, and the repository that it reads."""
    repository = Repository.make(tmp_path / "repository")
    with served(repository.folder) as url, running_flux(namespace, tmp_path):
        made = Flux(namespace, url)
        yield made
        # The test may not have come to the object, or may have removed it.
        with suppress(DevtoolsError):
            made.remove()


def run_of(script: str, number: int = 2) -> Values:
    """The page's run with another script, which waits in the pods for the file /data/go."""
    values = on_shared_cores({"worker": {"number": number, "slots": 1}})
    return {**values, "master": {"args": ["python3", "-uc", script]}}


WAIT = "import os, time\nwhile not os.path.exists('/data/go'): time.sleep(0.1)"


def identity(namespace: Namespace) -> dict[str, Any]:
    """What tells a run from another one: its Job, and the keys of the release."""
    job = namespace.get("job", namespace.job(RELEASE))["metadata"]
    keys = namespace.get("secret", f"{RELEASE}-ssh").get("data")
    return {"job": (job["name"], job["uid"]), "keys": keys}


def test_release_is_kept_as_the_page_says(
    flux: Flux, namespace: Namespace, node_folder: Path, privileged: Namespace, tmp_path: Path
) -> None:
    mount = on_node(node_folder, "data")
    flux.apply({**run_of(WAIT), **mount})
    flux.sync()
    namespace.wait_for_event("Training", 240)
    first = identity(namespace)

    # Somebody changes an object by hand in the middle of the run: it is healed, the run goes on.
    namespace.kubectl("delete", "service", RELEASE)
    flux.sync()
    wait_until(
        lambda: namespace.get("services")["items"], 120, "the Service is back", PROGRAM_PAUSE
    )
    assert identity(namespace) == first

    (node_folder / "go").touch()
    namespace.assert_completes(RELEASE)
    namespace.wait_for_no_workers(RELEASE)
    # An hour of syncs, shortened.
    for _ in range(5):
        flux.sync()
    assert identity(namespace) == first
    assert namespace.replicas(f"{RELEASE}-worker") == 0

    # Another chart alone repeats nothing.
    Repository(tmp_path / "repository").bump_chart()
    flux.sync()
    namespace.assert_completes(RELEASE)
    assert namespace.replicas(f"{RELEASE}-worker") == 0
    assert namespace.get("secret", f"{RELEASE}-ssh")["data"] == first["keys"]

    # Another value is another run; the Job of the run before is pruned.
    flux.apply({**run_of("print('again')", number=1), **mount})
    flux.sync()
    namespace.assert_completes(RELEASE)
    assert "again" in namespace.log(RELEASE)
    assert identity(namespace)["keys"] == first["keys"]

    flux.remove()
    namespace.wait_until_gone("statefulsets,jobs,services")

"""The objects of docs/gitops.md, followed by Flux and by Argo CD. Rare: both are built first.

Their controllers run here, beside the local cluster, and read the chart from a git server of the
test. The story is that of a team: install, change by hand, a finished run that is left alone,
another chart, and another value.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.common.errors import DevtoolsError
from devtools.toolchain.tools import ARGO, HELM_CONTROLLER, SOURCE_CONTROLLER, module_folder, tool
from tests.chart.test_custom_resources import documented
from tests.controllers import Controller, running
from tests.e2e.cluster import CHART, Namespace, Values, image_values, on_shared_cores
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
            "GIT_PROJECT_ROOT": str(self._root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
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
class Team(ABC):
    """A release that a tool keeps, as the page has it."""

    namespace: Namespace
    repository: Repository
    url: str

    @abstractmethod
    def apply(self, values: Values) -> None:
        """Write the page's objects, with `values` in addition."""

    @abstractmethod
    def sync(self) -> None:
        """Let the tool look at the repository and the cluster once more, and wait for its end."""

    @abstractmethod
    def remove(self) -> None:
        """Delete the tool's object, and with it the release."""

    def complete(self, values: Values, own: Values) -> Values:
        """The page's values, with those of the test."""
        return {**values, "image": image_values(self.namespace.image), **own}


class Flux(Team):
    """source-controller and helm-controller."""

    def apply(self, values: Values) -> None:
        source = documented("GitRepository")
        source["spec"].update(url=self.url, ref={"branch": BRANCH})
        release = documented("HelmRelease")
        release["spec"]["values"] = self.complete(release["spec"]["values"], values)
        for manifest in (source, release):
            manifest["metadata"]["namespace"] = self.namespace.name
            self.namespace.apply(manifest)

    def sync(self) -> None:
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
            f"--storage-path={folder / 'artifacts'}",
            f"--storage-addr={artifacts}",
            f"--storage-adv-addr={artifacts}",
        ),
        HELM_CONTROLLER: (),
    }
    (folder / "artifacts").mkdir()
    controllers = [
        Controller(
            module.rpartition("/")[2],
            crds=sorted((module_folder("flux", module) / "config/crd/bases").glob("*.yaml")),
            ready=["Starting workers"],
            arguments=[
                "--watch-all-namespaces=false",
                "--enable-leader-election=false",
                *options,
                *(f"--{what}-addr=127.0.0.1:{find_port()}" for what in ("metrics", "health")),
            ],
            environment={"RUNTIME_NAMESPACE": namespace.name},
        )
        for module, options in own.items()
    ]
    with running(namespace, controllers, folder):
        yield


class ArgoCD(Team):
    """The application controller and the repository server."""

    def apply(self, values: Values, *options: str, keeps_data: bool = False) -> None:
        """`options` are added to the page's; `keeps_data` adds what the page advises with them."""
        application = documented("Application")
        application["metadata"]["namespace"] = self.namespace.name
        spec = application["spec"]
        spec["source"].update(repoURL=self.url, targetRevision=BRANCH)
        spec["destination"]["namespace"] = self.namespace.name
        spec["syncPolicy"]["syncOptions"] += options
        if keeps_data:
            spec["ignoreDifferences"] += documented("Application", 1)["spec"]["ignoreDifferences"]
        helm = spec["source"]["helm"]
        helm["valuesObject"] = self.complete(helm["valuesObject"], values)
        self.namespace.apply(application)

    def sync(self) -> None:
        # `argocd app get --hard-refresh` does the same.
        refresh = "argocd.argoproj.io/refresh=hard"
        self.namespace.kubectl("annotate", "application", RELEASE, "--overwrite", refresh)
        wait_until(self._is_synced, 180, "Argo CD has synced", PROGRAM_PAUSE)

    def _is_synced(self) -> bool:
        application = self.namespace.get("application", RELEASE)
        has_work = "operation" in application or application["metadata"].get("annotations", {}).get(
            "argocd.argoproj.io/refresh"
        )
        status = application.get("status", {}).get("sync", {}).get("status")
        return not has_work and status == "Synced"

    def press_sync(self, force: bool = False) -> dict[str, Any]:
        """Sync all objects by hand with the Application's options, and return what came of it."""
        spec = self.namespace.get("application", RELEASE)["spec"]
        sync = {
            "syncOptions": spec["syncPolicy"]["syncOptions"],
            "syncStrategy": {"apply": {"force": force}},
        }
        patch = ("--type=merge", "--patch", json.dumps({"operation": {"sync": sync}}))
        self.namespace.kubectl("patch", "application", RELEASE, *patch)
        wait_until(
            lambda: "operation" not in self.namespace.get("application", RELEASE),
            180,
            "the sync has ended",
            PROGRAM_PAUSE,
        )
        state: dict[str, Any] = self.namespace.get("application", RELEASE)["status"]
        return dict(state["operationState"])

    def wait_for_health(self, health: str) -> None:
        is_so = f"--for=jsonpath={{.status.health.status}}={health}"
        self.namespace.kubectl("wait", "application", RELEASE, is_so, "--timeout=240s")

    def remove(self) -> None:
        self.namespace.kubectl("delete", "application", RELEASE, "--timeout=120s")


@contextmanager
def running_argo(namespace: Namespace, folder: Path) -> Iterator[None]:
    labels = {"app.kubernetes.io/part-of": "argocd"}
    # It leaves alone what an Application of the same name has in another namespace.
    own = {"installationID": namespace.name}
    for kind, name, data in (("ConfigMap", "argocd-cm", own), ("Secret", "argocd-secret", {})):
        meta = {"name": name, "labels": labels}
        namespace.apply({"apiVersion": "v1", "kind": kind, "metadata": meta, "data": data})
    redis, repositories = (f"127.0.0.1:{find_port()}" for _ in range(2))
    port = repositories.rpartition(":")[2]
    module = module_folder("argo", ARGO)
    crds = module / "manifests" / "crds"
    # The repository server calls this script for each commit, and Helm, by their names.
    script = folder / "bin" / "git-verify-wrapper.sh"
    script.parent.mkdir()
    script.write_bytes((module / "hack" / script.name).read_bytes())
    script.chmod(0o755)
    programs = f"{script.parent}:{tool('helm4').parent}"
    controllers = [
        Controller("argocd-redis", ready=["Ready to accept connections"], arguments=[redis]),
        Controller(
            "argocd-repo-server",
            ready=["is listening on"],
            arguments=[
                f"--redis={redis}",
                "--address=127.0.0.1",
                f"--port={port}",
                "--metrics-address=127.0.0.1",
                f"--metrics-port={find_port()}",
            ],
            environment={
                "PATH": f"{programs}:{os.environ['PATH']}",
                "ARGOCD_GPG_ENABLED": "false",
                "ARGOCD_ASK_PASS_SOCK": str(folder / "ask-pass.sock"),
            },
        ),
        Controller(
            "argocd-application-controller",
            ready=["Application Controller is starting"],
            crds=[crds / "application-crd.yaml", crds / "appproject-crd.yaml"],
            arguments=[
                f"--namespace={namespace.name}",
                f"--redis={redis}",
                f"--repo-server={repositories}",
                f"--metrics-port={find_port()}",
            ],
            # The cluster of KUBECONFIG is the one that it runs in.
            environment={"ARGOCD_FAKE_IN_CLUSTER": "true"},
        ),
    ]
    with running(namespace, controllers, folder):
        # As Argo CD's API server makes it.
        namespace.apply(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "AppProject",
                "metadata": {"name": "default"},
                "spec": {
                    "sourceRepos": ["*"],
                    "destinations": [{"namespace": "*", "server": "*"}],
                    "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
                },
            }
        )
        yield


@pytest.fixture(params=[(Flux, running_flux), (ArgoCD, running_argo)], ids=["flux", "argo"])
def team(request: pytest.FixtureRequest, namespace: Namespace, tmp_path: Path) -> Iterator[Team]:
    """A tool that runs, and the repository that it reads."""
    made, run = request.param
    repository = Repository.make(tmp_path / "repository")
    with served(repository.folder) as url, run(namespace, tmp_path):
        team: Team = made(namespace, repository, url)
        yield team
        # The test may not have come to the object, or may have removed it.
        with suppress(DevtoolsError):
            team.remove()


argo_alone = pytest.mark.parametrize("team", [(ArgoCD, running_argo)], ids=["argo"], indirect=True)


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
    team: Team, namespace: Namespace, node_folder: Path, privileged: Namespace
) -> None:
    mount = on_node(node_folder, "data")
    team.apply({**run_of(WAIT), **mount})
    team.sync()
    namespace.wait_for_event("Training", 240)
    first = identity(namespace)

    # Somebody changes an object by hand in the middle of the run: it is healed, the run goes on.
    namespace.kubectl("delete", "service", RELEASE)
    team.sync()
    wait_until(
        lambda: namespace.get("services")["items"], 120, "the Service is back", PROGRAM_PAUSE
    )
    assert identity(namespace) == first

    (node_folder / "go").touch()
    namespace.assert_completes(RELEASE)
    namespace.wait_for_no_workers(RELEASE)
    # An hour of syncs, shortened.
    for _ in range(5):
        team.sync()
    assert identity(namespace) == first
    assert namespace.replicas(f"{RELEASE}-worker") == 0

    # Another chart alone repeats nothing.
    team.repository.bump_chart()
    team.sync()
    namespace.assert_completes(RELEASE)
    assert namespace.replicas(f"{RELEASE}-worker") == 0
    assert namespace.get("secret", f"{RELEASE}-ssh")["data"] == first["keys"]

    # Another value is another run; the Job of the run before is pruned.
    team.apply({**run_of("print('again')", number=1), **mount})
    team.sync()
    namespace.assert_completes(RELEASE)
    assert "again" in namespace.log(RELEASE)
    assert identity(namespace)["keys"] == first["keys"]

    team.remove()
    namespace.wait_until_gone("statefulsets,jobs,services")


@argo_alone
def test_health_is_that_of_the_run(
    team: ArgoCD, namespace: Namespace, node_folder: Path, privileged: Namespace
) -> None:
    mount = on_node(node_folder, "data")
    team.apply({**run_of(WAIT, number=1), **mount})
    team.sync()
    namespace.wait_for_event("Training", 240)
    team.wait_for_health("Progressing")
    (node_folder / "go").touch()
    team.wait_for_health("Healthy")
    namespace.assert_completes(RELEASE)

    failing = run_of("raise SystemExit(3)", number=1)
    team.apply({**failing, **mount, "master": {**failing["master"], "backoffLimit": 0}})
    team.sync()
    team.wait_for_health("Degraded")


@argo_alone
@pytest.mark.parametrize("keeps_data", [False, True], ids=["as it is", "keeping the data"])
def test_replaced_objects_repeat_a_finished_run_unless_their_data_are_kept(
    team: ArgoCD, namespace: Namespace, keeps_data: bool
) -> None:
    """As the page says of the option Replace=true, and of what it advises for it."""
    team.apply(run_of("print('trained')", number=1), "Replace=true", keeps_data=keeps_data)
    team.sync()
    namespace.assert_completes(RELEASE)
    namespace.wait_for_no_workers(RELEASE)
    first = identity(namespace)
    team.sync()
    assert identity(namespace) == first, "nothing has changed"

    # Kubernetes refuses to replace the Job, after other objects.
    assert "field is immutable" in json.dumps(team.press_sync())
    assert identity(namespace)["job"] == first["job"]
    assert ("data" in namespace.get("configmap", f"{RELEASE}-run")) == keeps_data
    assert (identity(namespace)["keys"] == first["keys"]) == keeps_data

    # By force, it deletes and creates it.
    assert team.press_sync(force=True)["phase"] == "Succeeded"
    namespace.assert_completes(RELEASE)
    again = identity(namespace)
    assert again["job"] != first["job"]
    assert (again["keys"] == first["keys"]) == keeps_data
    assert ("trained" in namespace.log(RELEASE)) != keeps_data

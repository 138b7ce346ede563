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
from devtools.common.repository import CHART
from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.toolchain.tools import ARGO, HELM_CONTROLLER, SOURCE_CONTROLLER, module_folder, tool
from tests.support.controllers import Controller, running
from tests.support.gitops import documented_object
from tests.support.namespace import (
    Namespace,
    Values,
    image_values,
    new_namespace,
    on_shared_cores,
)
from tests.support.ports import find_port
from tests.support.volumes import on_node

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
        repository = cls(folder)
        repository.git("init", "--quiet", f"--initial-branch={BRANCH}")
        repository.git("add", "--all")
        repository.git("commit", "--quiet", "--message=chart")
        return repository

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

    def complete(self, values: Values, changes: Values) -> Values:
        """The page's values, with those of the test."""
        return {**values, "image": image_values(self.namespace.image), **changes}


class Flux(Team):
    """source-controller and helm-controller."""

    def apply(self, values: Values) -> None:
        source = documented_object("GitRepository")
        source["spec"].update(url=self.url, ref={"branch": BRANCH})
        release = documented_object("HelmRelease")
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
    storage_options = {
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
        for module, options in storage_options.items()
    ]
    with running(namespace, controllers, folder):
        yield


class ArgoCD(Team):
    """The application controller and the repository server."""

    def apply(self, values: Values, *options: str, keeps_data: bool = False) -> None:
        """`options` are added to the page's; `keeps_data` adds what the page advises with them."""
        application = documented_object("Application")
        application["metadata"]["namespace"] = self.namespace.name
        spec = application["spec"]
        spec["source"].update(repoURL=self.url, targetRevision=BRANCH)
        spec["destination"]["namespace"] = self.namespace.name
        spec["syncPolicy"]["syncOptions"] += options
        if keeps_data:
            spec["ignoreDifferences"] += documented_object("Application", 1)["spec"][
                "ignoreDifferences"
            ]
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


# As Argo CD's API server makes it.
PROJECT = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "AppProject",
    "metadata": {"name": "default"},
    "spec": {
        "sourceRepos": ["*"],
        "destinations": [{"namespace": "*", "server": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    },
}


@contextmanager
def running_argo(namespace: Namespace, folder: Path) -> Iterator[None]:
    labels = {"app.kubernetes.io/part-of": "argocd"}
    # It leaves alone what an Application of the same name has in another namespace.
    tracking = {"installationID": namespace.name}
    for kind, name, data in (("ConfigMap", "argocd-cm", tracking), ("Secret", "argocd-secret", {})):
        meta = {"name": name, "labels": labels}
        namespace.apply({"apiVersion": "v1", "kind": kind, "metadata": meta, "data": data})
    with running(namespace, controllers_of_argo(namespace, folder), folder):
        namespace.apply(PROJECT)
        yield


def controllers_of_argo(namespace: Namespace, folder: Path) -> list[Controller]:
    """The programs of Argo CD, and Redis, for the Applications of a namespace."""
    redis, repositories = (f"127.0.0.1:{find_port()}" for _ in range(2))
    module = module_folder("argo", ARGO)
    crds = module / "manifests" / "crds"
    # The repository server calls this script for each commit, and Helm, by their names.
    script = folder / "bin" / "git-verify-wrapper.sh"
    script.parent.mkdir()
    script.write_bytes((module / "hack" / script.name).read_bytes())
    script.chmod(0o755)
    programs = f"{script.parent}:{tool('helm4').parent}"
    return [
        Controller("argocd-redis", ready=["Ready to accept connections"], arguments=[redis]),
        Controller(
            "argocd-repo-server",
            ready=["is listening on"],
            arguments=[
                f"--redis={redis}",
                "--address=127.0.0.1",
                f"--port={repositories.rpartition(':')[2]}",
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


@pytest.fixture(
    scope="class", params=[(Flux, running_flux), (ArgoCD, running_argo)], ids=["flux", "argo"]
)
def kind(request: pytest.FixtureRequest) -> Any:
    """A class of teams, and what runs its tool."""
    return request.param


@pytest.fixture(scope="class")
def namespace(
    kind: Any, kubeconfig: Path, examples_image: str, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A namespace for each tool."""
    tool, _ = kind
    name = f"{tool.__name__}-{request.node.name}"
    with new_namespace(name, kubeconfig, examples_image) as namespace:
        yield namespace


@pytest.fixture(scope="class")
def team(
    kind: Any, namespace: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    """A tool that runs, and the repository that it reads."""
    tool, run = kind
    folder = tmp_path_factory.mktemp("team")
    repository = Repository.make(folder / "repository")
    with served(repository.folder) as url, run(namespace, folder):
        team: Team = tool(namespace, repository, url)
        yield team
        # The test may not have come to the object, or may have removed it.
        with suppress(DevtoolsError):
            team.remove()


argo_alone = pytest.mark.parametrize("kind", [(ArgoCD, running_argo)], ids=["argo"], indirect=True)


@pytest.fixture(scope="class")
def go(namespace: Namespace, privileged: Namespace, node_folder: Path) -> Path:
    """The file that a run of WAIT waits for: each namespace has a folder of its own for it."""
    folder = node_folder / namespace.name
    folder.mkdir()
    return folder / "go"


def run_of(script: str, number: int = 2) -> Values:
    """The page's run with another script, which waits in the pods for the file /data/go."""
    values = on_shared_cores({"worker": {"number": number, "slots": 1}})
    return {**values, "master": {"args": ["python3", "-uc", script]}}


WAIT = "import os, time\nwhile not os.path.exists('/data/go'): time.sleep(0.1)"


def identity(namespace: Namespace) -> dict[str, Any]:
    """What tells a run from another one: its Job, and the keys of the release."""
    job = namespace.get("job", namespace.job(RELEASE))["metadata"]
    return {"job": (job["name"], job["uid"]), "keys": namespace.keys(RELEASE)}


@dataclass(frozen=True)
class Kept:
    """A release that a team keeps, its volume, and what its first run is known by."""

    team: Team
    mount: Values
    first: dict[str, Any]


@pytest.fixture(scope="class")
def training(team: Team, namespace: Namespace, go: Path) -> Kept:
    """The first run trains."""
    mount = on_node(go.parent, "data")
    team.apply({**run_of(WAIT), **mount})
    team.sync()
    namespace.wait_for_event("Training", 240)
    return Kept(team, mount, identity(namespace))


@pytest.fixture(scope="class")
def damaged(training: Kept, namespace: Namespace) -> Kept:
    """Somebody has deleted an object in the middle of the run, and the tool has synced."""
    namespace.kubectl("delete", "service", RELEASE)
    training.team.sync()
    return training


@pytest.fixture(scope="class")
def finished(damaged: Kept, namespace: Namespace, go: Path) -> Kept:
    """The run has finished, and the tool has synced as often as in an hour."""
    go.touch()
    namespace.assert_completes(RELEASE)
    namespace.wait_for_no_workers(RELEASE)
    for _ in range(5):
        damaged.team.sync()
    return damaged


@pytest.fixture(scope="class")
def bumped(finished: Kept, namespace: Namespace) -> Kept:
    """Another chart has come."""
    finished.team.repository.bump_chart()
    finished.team.sync()
    namespace.assert_completes(RELEASE)
    return finished


@pytest.fixture(scope="class")
def changed(bumped: Kept, namespace: Namespace) -> Kept:
    """Another value has come, and its run has completed."""
    bumped.team.apply({**run_of("print('again')", number=1), **bumped.mount})
    bumped.team.sync()
    namespace.assert_completes(RELEASE)
    return bumped


@pytest.fixture(scope="class")
def removed(changed: Kept) -> None:
    """The tool's object is deleted."""
    changed.team.remove()


class TestReleaseOfATeam:
    def test_deleted_object_comes_back(self, damaged: Kept, namespace: Namespace) -> None:
        wait_until(
            lambda: namespace.get("services")["items"], 120, "the Service is back", PROGRAM_PAUSE
        )

    def test_run_continues_when_an_object_is_healed(
        self, damaged: Kept, namespace: Namespace
    ) -> None:
        assert identity(namespace) == damaged.first

    def test_syncs_leave_a_finished_run_alone(self, finished: Kept, namespace: Namespace) -> None:
        assert identity(namespace) == finished.first
        assert namespace.replicas(f"{RELEASE}-worker") == 0

    def test_another_chart_alone_repeats_nothing(self, bumped: Kept, namespace: Namespace) -> None:
        assert namespace.replicas(f"{RELEASE}-worker") == 0
        assert namespace.keys(RELEASE) == bumped.first["keys"]

    def test_another_value_is_another_run_with_the_same_keys(
        self, changed: Kept, namespace: Namespace
    ) -> None:
        """The Job of the run before is pruned: the log is that of the only one."""
        assert "again" in namespace.log(RELEASE)
        assert identity(namespace)["keys"] == changed.first["keys"]

    def test_removed_object_takes_the_release_with_it(
        self, removed: None, namespace: Namespace
    ) -> None:
        namespace.wait_until_gone("statefulsets,jobs,services")


@argo_alone
def test_health_is_that_of_the_run(team: ArgoCD, namespace: Namespace, go: Path) -> None:
    mount = on_node(go.parent, "data")
    team.apply({**run_of(WAIT, number=1), **mount})
    team.sync()
    namespace.wait_for_event("Training", 240)
    team.wait_for_health("Progressing")
    go.touch()
    team.wait_for_health("Healthy")
    namespace.assert_completes(RELEASE)

    failing = run_of("raise SystemExit(3)", number=1)
    team.apply({**failing, **mount, "master": {**failing["master"], "backoffLimit": 0}})
    team.sync()
    team.wait_for_health("Degraded")


@pytest.fixture(scope="class")
def trained(request: pytest.FixtureRequest, team: ArgoCD, namespace: Namespace) -> dict[str, Any]:
    """What a run is known by that has finished, of an Application with the option Replace=true."""
    run = run_of("print('trained')", number=1)
    team.apply(run, "Replace=true", keeps_data=request.cls.KEEPS_DATA)
    team.sync()
    namespace.assert_completes(RELEASE)
    namespace.wait_for_no_workers(RELEASE)
    return identity(namespace)


@pytest.fixture(scope="class")
def pressed(trained: dict[str, Any], team: ArgoCD) -> dict[str, Any]:
    """What came of a sync of all objects by hand."""
    return team.press_sync()


@pytest.fixture(scope="class")
def forced(pressed: dict[str, Any], team: ArgoCD, namespace: Namespace) -> dict[str, Any]:
    """What came of the same by force, after which the run has completed."""
    state = team.press_sync(force=True)
    namespace.assert_completes(RELEASE)
    return state


@argo_alone
class TestReplacedObjects:
    """As the page says of the option Replace=true."""

    KEEPS_DATA = False

    def test_sync_without_a_change_repeats_nothing(
        self, trained: dict[str, Any], team: ArgoCD, namespace: Namespace
    ) -> None:
        team.sync()
        assert identity(namespace) == trained

    def test_job_cannot_be_replaced(
        self, trained: dict[str, Any], pressed: dict[str, Any], namespace: Namespace
    ) -> None:
        """Kubernetes refuses it, after other objects have been replaced."""
        assert "field is immutable" in json.dumps(pressed)
        assert identity(namespace)["job"] == trained["job"]

    def test_data_of_the_run_stay_if_the_application_asks_for_it(
        self, trained: dict[str, Any], pressed: dict[str, Any], namespace: Namespace
    ) -> None:
        assert ("data" in namespace.get("configmap", f"{RELEASE}-run")) == self.KEEPS_DATA
        assert (identity(namespace)["keys"] == trained["keys"]) == self.KEEPS_DATA

    def test_force_deletes_and_creates_the_job(
        self, trained: dict[str, Any], forced: dict[str, Any], namespace: Namespace
    ) -> None:
        assert forced["phase"] == "Succeeded"
        assert identity(namespace)["job"] != trained["job"]

    def test_finished_run_is_repeated_unless_its_data_are_kept(
        self, trained: dict[str, Any], forced: dict[str, Any], namespace: Namespace
    ) -> None:
        assert (identity(namespace)["keys"] == trained["keys"]) == self.KEEPS_DATA
        assert ("trained" in namespace.log(RELEASE)) != self.KEEPS_DATA


class TestReplacedObjectsWhoseDataAreKept(TestReplacedObjects):
    """With what the page advises for that option."""

    KEEPS_DATA = True

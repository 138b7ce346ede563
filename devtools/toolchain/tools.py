"""Build programs from Go modules that are pinned with checksums in devtools/toolchain/go.

Each program is cached under a key of its inputs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from devtools.common.cache import cache_dir, content_key
from devtools.common.commands import read_output, run_logged
from devtools.common.errors import DevtoolsError
from devtools.common.locks import exclusive_lock
from devtools.common.ui import note, step

GO_SOURCES = Path(__file__).parent / "go"
# grpcnotrace leaves out golang.org/x/net/trace, whose use of reflection stops the linker from
# dropping dead code. The linker strips symbols for debuggers; not generating them saves a tenth of
# the compiler's time.
BUILD_FLAGS = ("-trimpath", "-tags=grpcnotrace", "-gcflags=all=-dwarf=false")
SMALL_LINKER_FLAGS = "-s -w -buildid="
# -buildvcs=false: to stamp the commit into a program, Go calls git, which refuses a checkout of
# another user. The same program would also differ from commit to commit.
ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
# Folders whose modules need a newer Go than distributions have. Go downloads it as a module, too.
NEWER_GO = ("argo",)
# Its go.mod has the default release of Kubernetes. Each other release has a list of modules beside
# it, such as 1.34.mod, for the same main.go.
KUBE = GO_SOURCES / "kube"
RELEASE_VARIABLE = "LOCALKUBE_KUBERNETES"


@dataclass(frozen=True)
class Tool:
    """One program.

    folder: its module's directory in devtools/toolchain/go.
    package: the Go package to build there.
    binary: the file's name.
    versioned: the module whose version, from go.mod, the program reports.
    variables: the Go variables that hold that version.
    links: other names that the program can be called by.
    kubernetes_minor: the Go variables that hold the minor version of the Kubernetes libraries that
    the program is built with.
    """

    name: str
    folder: str
    package: str
    binary: str
    versioned: str = ""
    variables: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    kubernetes_minor: tuple[str, ...] = ()


KUBERNETES = "k8s.io/kubernetes"
KUBE_VERSION = (
    "k8s.io/component-base/version.gitVersion",
    "k8s.io/client-go/pkg/version.gitVersion",
)
HELM_3 = "helm.sh/helm/v3"
HELM_4 = "helm.sh/helm/v4"
CHART_TESTING = "github.com/helm/chart-testing/v3"
KUBECONFORM = "github.com/yannh/kubeconform"
KUBE_SCORE = "github.com/zegl/kube-score"
ACTIONLINT = "github.com/rhysd/actionlint"
MPI_OPERATOR = "github.com/kubeflow/mpi-operator"
SOURCE_CONTROLLER = "github.com/fluxcd/source-controller"
HELM_CONTROLLER = "github.com/fluxcd/helm-controller"
ARGO = "github.com/argoproj/argo-cd/v3"
KWOK = "sigs.k8s.io/kwok"
KUEUE = "sigs.k8s.io/kueue"
TRAINER = "github.com/kubeflow/trainer/v2"
JOBSET = "sigs.k8s.io/jobset"
BUILT = {
    tool.name: tool
    for tool in (
        Tool("kube", "kube", ".", "kube", KUBERNETES, KUBE_VERSION),
        # A separate program: as a part of `kube`, kubectl takes twice the time for each call.
        Tool("kubectl", "kube", f"{KUBERNETES}/cmd/kubectl", "kubectl", KUBERNETES, KUBE_VERSION),
        Tool("coredns", "tools", "./coredns", "coredns"),
        Tool("pause", "tools", "./pause", "pause"),
        # Not part of the cluster: tests run it to enforce NetworkPolicies.
        Tool("policy", "tools", "./policy", "policy"),
        Tool(
            "helm3",
            "tools",
            f"{HELM_3}/cmd/helm",
            "helm",
            HELM_3,
            (f"{HELM_3}/internal/version.version",),
            # Without these, `helm template` and `helm lint` assume Kubernetes 1.20.
            kubernetes_minor=(
                f"{HELM_3}/pkg/chartutil.k8sVersionMinor",
                f"{HELM_3}/pkg/lint/rules.k8sVersionMinor",
            ),
        ),
        Tool(
            "helm4",
            "tools",
            f"{HELM_4}/cmd/helm",
            "helm",
            HELM_4,
            (f"{HELM_4}/internal/version.version",),
        ),
        Tool(
            "ct",
            "tools",
            f"{CHART_TESTING}/ct",
            "ct",
            CHART_TESTING,
            (f"{CHART_TESTING}/ct/cmd.Version",),
        ),
        Tool(
            "kubeconform",
            "tools",
            f"{KUBECONFORM}/cmd/kubeconform",
            "kubeconform",
            KUBECONFORM,
            ("main.version",),
        ),
        # In a separate module: kube-score needs older libraries of Kubernetes than Helm.
        Tool(
            "kube-score",
            "checks",
            f"{KUBE_SCORE}/cmd/kube-score",
            "kube-score",
            KUBE_SCORE,
            ("main.version",),
        ),
        Tool("registry", "checks", "./registry", "registry"),
        Tool(
            "actionlint",
            "checks",
            f"{ACTIONLINT}/cmd/actionlint",
            "actionlint",
            ACTIONLINT,
            (f"{ACTIONLINT}.version",),
        ),
        # Operators that benchmarks compare the chart with. Only benchmarks build them. Trainer and
        # JobSet need newer Kubernetes libraries than the released MPI Operator.
        Tool("mpi-operator", "peer", f"{MPI_OPERATOR}/cmd/mpi-operator", "mpi-operator"),
        # Programs that rare tests and benchmarks run beside the local cluster.
        Tool("kwok", "kwok", f"{KWOK}/cmd/kwok", "kwok"),
        Tool("kueue", "kueue", f"{KUEUE}/cmd/kueue", "kueue"),
        Tool("source-controller", "flux", SOURCE_CONTROLLER, "source-controller"),
        Tool("helm-controller", "flux", HELM_CONTROLLER, "helm-controller"),
        Tool(
            "argocd",
            "argo",
            ".",
            "argocd",
            links=("argocd-application-controller", "argocd-repo-server", "argocd-redis"),
        ),
        Tool("trainer", "trainer", f"{TRAINER}/cmd/trainer-controller-manager", "trainer"),
        Tool("jobset", "trainer", JOBSET, "jobset"),
    )
}
LINKED = {link: tool for tool in BUILT.values() for link in tool.links}
TOOL_NAMES = sorted([*BUILT, *LINKED])


def tool(name: str) -> Path:
    """Return the absolute path of the program `name` (one of TOOL_NAMES), and build it first if the
    cache does not have it.

    Raises DevtoolsError for an unknown name, a missing Go, or a build that failed.
    """
    built = BUILT.get(name) or LINKED.get(name)
    if built is None:
        raise DevtoolsError(f"no tool is called {name!r}", f"use one of: {', '.join(TOOL_NAMES)}")
    directory = _directory(built)
    if not directory.exists():
        # One build at a time: each uses all cores and gigabytes of memory.
        with exclusive_lock(directory.parent / ".build.lock", "building a Go program"):
            if not directory.exists():
                _build(built, directory)
    return directory / (built.binary if name == built.name else name)


def module_version(folder: str, module: str) -> str:
    """Return the version of `module` in the list of modules of `folder`. Raises DevtoolsError when
    it has none, and for a release in $LOCALKUBE_KUBERNETES that there is not.
    """
    return _version_in(_module_list(folder), module)


def kubernetes_releases() -> dict[str, str]:
    """Return the versions of Kubernetes that the local cluster can run by their release, such as
    v1.37.2 by 1.37, the default first.
    """
    lists = [KUBE / "go.mod", *sorted(KUBE.glob("[0-9]*.mod"), reverse=True)]
    versions = [_version_in(path, KUBERNETES) for path in lists]
    return {version.removeprefix("v").rpartition(".")[0]: version for version in versions}


def _module_list(folder: str) -> Path:
    """Return the list of modules of the programs of `folder`: go.mod, or, for Kubernetes, the list
    of the release in $LOCALKUBE_KUBERNETES. Their checksums are in the file .sum beside it.

    Raises DevtoolsError for a release that there is not.
    """
    go_mod = GO_SOURCES / folder / "go.mod"
    wanted = os.environ.get(RELEASE_VARIABLE)
    if folder != KUBE.name or not wanted:
        return go_mod
    releases = list(kubernetes_releases())
    if wanted not in releases:
        raise DevtoolsError(
            f"{RELEASE_VARIABLE}={wanted!r} is no release that the local cluster can run",
            f"use one of: {', '.join(releases)}",
        )
    return go_mod if wanted == releases[0] else KUBE / f"{wanted}.mod"


def module_folder(folder: str, module: str) -> Path:
    """Return the folder with the downloaded sources of a module in the list of modules of `folder`.

    Raises DevtoolsError when Go cannot download it, or the list does not require it.
    """
    go = ["go", "-C", str(GO_SOURCES / folder)]
    printed = ""
    for command in ([*go, "mod", "download", module], [*go, "list", "-m", "-f={{.Dir}}", module]):
        environment = {**os.environ, **_environment(folder)}
        remedy = f"run: {' '.join(command)}"
        printed = read_output(command, remedy=remedy, environment=environment)
    return Path(printed.strip())


def _version_in(modules: Path, module: str) -> str:
    line = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", modules.read_text(), re.M)
    if line is None:
        raise DevtoolsError(f"{modules} does not require {module}", "add it there with `go get`")
    return line[1]


def _environment(folder: str) -> dict[str, str]:
    environment = {**ENVIRONMENT, "GOTOOLCHAIN": "auto" if folder in NEWER_GO else "local"}
    modules = _module_list(folder)
    if modules.name != "go.mod":
        # Relative to the folder in which Go runs: a full path would give another key in each
        # checkout.
        environment["GOFLAGS"] += f" -modfile={modules.name}"
    return environment


def _directory(tool: Tool) -> Path:
    settings = [f"{name}={value}" for name, value in _environment(tool.folder).items()]
    flags = [*BUILD_FLAGS, _linker_flags(tool), tool.package]
    key = content_key(_inputs(tool), _go_version(), *settings, *flags)
    return cache_dir() / "tools" / f"{tool.name}-{key}"


def _inputs(tool: Tool) -> list[Path]:
    modules = _module_list(tool.folder)
    sources = GO_SOURCES / tool.folder / tool.package
    sources_of_package = sorted(sources.glob("*.go")) if tool.package.startswith(".") else []
    return [modules, modules.with_suffix(".sum"), *sources_of_package]


def _linker_flags(tool: Tool) -> str:
    settings = [
        f"-X {variable}={module_version(tool.folder, tool.versioned)}"
        for variable in tool.variables
    ]
    if tool.kubernetes_minor:
        minor = module_version(tool.folder, "k8s.io/client-go").split(".")[1]
        settings += [f"-X {variable}={minor}" for variable in tool.kubernetes_minor]
    return " ".join([SMALL_LINKER_FLAGS, *settings])


@cache
def _go_version() -> str:
    """Return the version of the installed Go, such as "go1.26.8". Go itself refuses to build a
    module that requires a newer one. Raises DevtoolsError without Go.
    """
    if shutil.which("go") is None:
        raise DevtoolsError(
            "Go is not installed (no `go` on PATH); the tools are built with it",
            "install Go from your distribution or https://go.dev/dl",
        )
    answer = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True)
    return answer.stdout.strip()


def _build(tool: Tool, directory: Path) -> None:
    """Build in a temporary directory and rename it: an interrupted build leaves nothing."""
    source = GO_SOURCES / tool.folder
    log = cache_dir() / "logs" / f"build-{tool.name}.log"
    log.unlink(missing_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{tool.name}-", dir=directory.parent))
    flags = [*BUILD_FLAGS, f"-ldflags={_linker_flags(tool)}"]
    command = ["go", "build", *flags, "-o", str(partial / tool.binary), tool.package]
    try:
        with step(f"build {tool.name} from Go modules"):
            run_logged(
                command,
                log,
                remedy=f"in {source}, run: {' '.join(command)}",
                folder=source,
                environment={**os.environ, **_environment(tool.folder)},
            )
        for link in tool.links:
            (partial / link).symlink_to(tool.binary)
        partial.chmod(0o755)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = (directory / tool.binary).stat().st_size / 1e6
    note(f"        {directory / tool.binary} ({size:.0f} MB)")

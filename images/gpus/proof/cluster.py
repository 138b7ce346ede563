"""The chart on a Kubernetes with a real `nvidia.com/gpu`: `cluster BUNDLE`.

The local Kubernetes comes with the bundle. The pods' image is the machine's root file system: a
small image with /etc, into which /usr and the folders of Python are mounted from the node,
read-only.
`HVD_PROOF_GPU=fake` rehearses it without a GPU.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from images.gpus.proof.__main__ import PREFIX, PROJECT, SITE

GPU = os.environ.get("HVD_PROOF_GPU", "real")
DEVICE = "cuda" if GPU == "real" else "cpu"
# Disks of such machines may be overlays, on which a container's file system cannot be.
WORK = Path("/opt/hvd-gpu")
CACHE = WORK / "cache"
# Where the packages of the bundle are in pods.
PACKAGES = Path("/opt/hvd-gpu-prefix")
IMAGE = "docker.io/local/machine:1"
NAMESPACE = "gpu"
# The names of the tools' folders hold the version of Go that built them.
GO = '#!/bin/sh\n[ "$1 $2" = "env GOVERSION" ] && echo "$HVD_PROOF_GO" || exit 1\n'
BEGAN = time.monotonic()
found: dict[str, Any] = {}

PROBE = r"""
import glob, json, os, torch, horovod.torch as hvd
hvd.init()
device = os.environ["TEST_DEVICE"]
if device == "cuda":
    torch.cuda.set_device(hvd.local_rank())
x = torch.full((1 << 20,), hvd.rank() + 1.0, device=device)
y = hvd.allreduce(x, op=hvd.Sum)
right = float(y.min()) == float(y.max()) == hvd.size() * (hvd.size() + 1) / 2
shm = os.statvfs("/dev/shm")
print("RESULT " + json.dumps({
    "right": right, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    "NCCL is loaded": "libnccl" in open("/proc/self/maps").read(), "user": os.getuid(),
    "device files": sorted(glob.glob("/dev/nvidia*")),
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    "MiB of shared memory": shm.f_blocks * shm.f_bsize >> 20}), flush=True)
"""
# It loses its rank three times.
LOST = r"""
import json, os, signal, time, torch, horovod.torch as hvd, keep
hvd.init()
device = os.environ["TEST_DEVICE"]
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 256))
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
state = keep.State(model=model, optimizer=optimizer)
begin = state.restore()
print(f"STEP {begin} begins at {time.time():.3f}", flush=True)
for number in range(begin, 200):
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(number)).to(device)
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    state.commit()
    if number == begin:
        print(f"STEP {number} done at {time.time():.3f}", flush=True)
    if begin < 150 and number == begin + 49:
        # A commit is complete some milliseconds after the call.
        time.sleep(0.1)
        print(f"STEP {number} killed at {time.time():.3f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
print("RESULT " + json.dumps({"begin": begin, "loss": float(loss.detach())}), flush=True)
"""
STAYS = r"""
import os, time, torch
device = os.environ["TEST_DEVICE"]
x = torch.ones(1 << 28, device=device)
print("STAYS", flush=True)
for _ in range(400):
    (x * 2).sum().item()
    time.sleep(0.05)
"""


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f}] {text}", flush=True)


def call(command: list[str], *, seconds: float = 60, check: bool = True, **options: Any) -> str:
    """What a command prints. Raises RuntimeError with it when it fails or takes too long."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, **options
        )
    except subprocess.TimeoutExpired as problem:
        raise RuntimeError(f"{command} took over {seconds} s: {problem.stdout!r}") from problem
    output = done.stdout + done.stderr
    if check and done.returncode:
        raise RuntimeError(f"{command} exited with status {done.returncode}: {output[-3000:]}")
    return output


def unpack_one(place: tuple[Path, Path]) -> None:
    source, target = place
    target.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(source) as packed, target.open("wb") as out:
        shutil.copyfileobj(packed, out, 1 << 20)
    target.chmod(0o755)


def unpack(bundle: Path) -> None:
    """Put the tools where the project looks for them, and Debian's programs on PATH."""
    if not CACHE.exists():
        CACHE.mkdir(parents=True)
        call(["mount", "-t", "tmpfs", "-o", "size=24g,mode=755", "hvd-gpu", str(CACHE)])
    places = [
        (file, CACHE / "tools" / file.parent.name / file.stem)
        for file in bundle.glob("**/tools/*/*.xz")
    ]
    (programs,) = bundle.glob("**/programs.tar.xz")
    places.append((programs, WORK / "programs.tar"))
    with ProcessPoolExecutor(8) as pool:
        list(pool.map(unpack_one, places))
    with tarfile.open(WORK / "programs.tar") as tar:
        tar.extractall(WORK / "programs", filter="data")
    for program in (WORK / "programs/bin").iterdir():
        if not shutil.which(program.name):
            shutil.copy2(program, "/usr/local/bin")
    Path("/usr/lib/cni").mkdir(exist_ok=True)
    for program in (WORK / "programs/cni").iterdir():
        if not Path("/usr/lib/cni", program.name).exists():
            shutil.copy2(program, "/usr/lib/cni")
    known = call(["ldconfig", "-p"])
    for library in (WORK / "programs/lib").iterdir():
        if f"\t{library.name} " not in known:
            shutil.copy2(library, "/usr/local/lib")
    call(["ldconfig"])
    shims = {
        "go": GO,
        "helm": f'#!/bin/sh\nexec {the_one("tools/helm4-*/helm")} "$@"\n',
        "kubectl": f'#!/bin/sh\nexec {the_one("tools/kube-*/kube")} kubectl "$@"\n',
    }
    for name, text in shims.items():
        if not shutil.which(name):
            file = Path("/usr/local/bin", name)
            file.write_text(text)
            file.chmod(0o755)


def the_one(pattern: str) -> Path:
    (path,) = CACHE.glob(pattern)
    return path


def environment(bundle: Path) -> dict[str, str]:
    (go,) = bundle.glob("**/go-version")
    return {
        **os.environ,
        "HVD_CACHE": str(CACHE),
        "HVD_PROOF_GO": go.read_text().strip(),
        "PATH": f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin",
    }


def mount_cgroups() -> None:
    """Such a machine may have none mounted."""
    mounted = Path("/proc/self/mountinfo").read_text()
    if " - cgroup" not in mounted:
        Path("/sys/fs/cgroup").mkdir(exist_ok=True)
        call(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"])


def mounts() -> list[str]:
    """Folders of the machine that pods need: the system, and that of its Python."""
    own = "/" + Path(sys.executable).parts[1]
    return sorted({"/usr", own, "/opt"} - {"/bin"})


def write_image() -> Path:
    """An archive of an image with the links of the machine's root, and what of /etc is needed."""
    from devtools.localkube import oci

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:

        def add(
            name: str, kind: bytes, *, mode: int = 0o755, link: str = "", data: bytes = b""
        ) -> None:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = mode
            info.linkname = link
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))

        folders = [
            "proc",
            "sys",
            "dev",
            "run",
            "var",
            "etc",
            "etc/alternatives",
            "etc/ld.so.conf.d",
        ]
        for name in [*folders, "home", "root", "srv", "mnt", *(m.strip("/") for m in mounts())]:
            add(name, tarfile.DIRTYPE)
        add("tmp", tarfile.DIRTYPE, mode=0o1777)
        for name in ("bin", "sbin", "lib", "lib64", "lib32"):
            if Path("/", name).is_symlink():
                add(name, tarfile.SYMTYPE, link=str(Path("/", name).readlink()))
        files = ["ld.so.cache", "ld.so.conf", "nsswitch.conf", "services", "protocols"]
        paths = [Path("/etc", name) for name in files]
        paths += [*Path("/etc/ld.so.conf.d").iterdir(), *Path("/etc/alternatives").iterdir()]
        for path in paths:
            if path.is_symlink():
                add(str(path)[1:], tarfile.SYMTYPE, link=str(path.readlink()))
            elif path.is_file():
                add(str(path)[1:], tarfile.REGTYPE, mode=0o644, data=path.read_bytes())
        users = b"root:x:0:0:root:/root:/bin/sh\nhorovod:x:1000:1000::/home/horovod:/bin/sh\n"
        add("etc/passwd", tarfile.REGTYPE, mode=0o644, data=users)
        add("etc/group", tarfile.REGTYPE, mode=0o644, data=b"root:x:0:\nhorovod:x:1000:\n")
    layer = oci.descriptor(oci.LAYER, raw.getvalue())
    paths_of_programs = [str(PACKAGES / "bin"), str(Path(sys.executable).parent)]
    standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = [
        f"PATH={':'.join(paths_of_programs)}:{standard}",
        f"PYTHONPATH={PACKAGES / SITE.relative_to(PREFIX)}",
    ]
    if os.environ.get("LD_LIBRARY_PATH"):
        variables.append(f"LD_LIBRARY_PATH={os.environ['LD_LIBRARY_PATH']}")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": variables, "User": "1000", "WorkingDir": "/", "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    archive = WORK / "machine.tar"
    content = {layer["digest"]: raw.getvalue()}
    oci.write_archive(archive, IMAGE, oci.to_json(config), [layer], content)
    return archive


class Cluster:
    """The local Kubernetes and its clients."""

    def __init__(self, bundle: Path) -> None:
        self.variables = environment(bundle)
        self.kube = str(the_one("tools/kube-*/kube"))
        self.helm_program = str(the_one("tools/helm4-*/helm"))

    def python(self, *arguments: str, seconds: float = 60) -> str:
        command = [sys.executable, "-m", *arguments]
        return call(command, seconds=seconds, env=self.variables, cwd=PROJECT)

    def start(self) -> None:
        self.python("devtools.localkube", "up", seconds=120)
        answer = self.python("devtools.localkube", "kubeconfig")
        self.variables["KUBECONFIG"] = answer.strip().splitlines()[-1]

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        command = [self.kube, "kubectl", "--cache-dir=/tmp/kubectl-cache", *arguments]
        return call(command, check=check, env=self.variables)

    def helm(self, *arguments: str, check: bool = True) -> str:
        return call(
            [self.helm_program, "-n", NAMESPACE, *arguments], check=check, env=self.variables
        )

    def hvdchart(self, *arguments: str) -> list[str]:
        command = [sys.executable, "-m", "hvdchart", *arguments, "-n", NAMESPACE]
        if "--" in arguments:
            at = arguments.index("--")
            command = [sys.executable, "-m", "hvdchart", *arguments[:at], "-n", NAMESPACE]
            command += arguments[at:]
        output = call(command, check=False, seconds=30, env=self.variables, cwd=PROJECT)
        return output.splitlines()[-20:]

    def allocatable(self) -> str:
        path = r"jsonpath={.items[0].status.allocatable.nvidia\.com/gpu}"
        return self.kubectl("get", "nodes", "-o", path, check=False).strip()


def plugins_folder() -> Path:
    """Where the kubelet has its socket for device plugins, which no other mount namespace shows."""
    from devtools.localkube.instance import current
    from devtools.localkube.node_processes import NodeProcesses
    from devtools.localkube.node_setup import DEVICE_PLUGINS

    processes = NodeProcesses.read(current())
    if processes is None:
        raise RuntimeError("the local Kubernetes has no file with its processes")
    return Path(f"/proc/{processes.init.pid}/root{DEVICE_PLUGINS}")


@contextmanager
def device_plugin(cluster: Cluster) -> Iterator[None]:
    command = [sys.executable, "-m", "images.gpus.proof.plugin", GPU, str(plugins_folder())]
    with (
        (WORK / "plugin.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=cluster.variables) as process,
    ):
        try:
            deadline = time.monotonic() + 30
            while cluster.allocatable() in ("", "0"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"no nvidia.com/gpu: {(WORK / 'plugin.log').read_text()}")
                time.sleep(0.5)
            yield
        finally:
            process.terminate()


def values(**more: Any) -> dict[str, Any]:
    """Values of a release with one worker, which has the GPU."""
    places = mounts()
    made: dict[str, Any] = {
        "image": {"repository": "local/machine", "tag": "1"},
        "shm": {"sizeLimit": "4Gi"},
        "volumeMounts": [
            {"name": f"m{number}", "mountPath": place, "readOnly": True}
            for number, place in enumerate(places)
        ],
        "volumes": [
            {"name": f"m{number}", "hostPath": {"path": place}}
            for number, place in enumerate(places)
        ],
        "worker": {
            "env": [{"name": "TEST_DEVICE", "value": DEVICE}],
            "number": 1,
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "slots": 1,
        },
    }
    for key, value in more.items():
        made[key] = {**made.get(key, {}), **value} if isinstance(value, dict) else value
    return made


def install(cluster: Cluster, release: str, script: Path, made: dict[str, Any]) -> float:
    """Install a release that runs a script; return the seconds that Helm took."""
    file = WORK / f"{release}.json"
    file.write_text(json.dumps(made, indent=1))
    name = script.name.replace(".", "\\.")
    began = time.monotonic()
    chart = str(PROJECT / "charts/horovod")
    cluster.helm(
        "install", release, chart, "-f", str(file), f"--set-file=code.files.{name}={script}"
    )
    return round(time.monotonic() - began, 2)


def master_log(cluster: Cluster, release: str) -> str:
    selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/component=master"
    options = ["--timestamps", "--tail=-1", "--prefix=false"]
    return cluster.kubectl("-n", NAMESPACE, "logs", "-l", selector, *options, check=False)


def run(cluster: Cluster, release: str, script: Path, made: dict[str, Any]) -> dict[str, Any]:
    """Run a release to its end. Raises RuntimeError unless it completes within 90 seconds."""
    began = time.time()
    seconds = install(cluster, release, script, made)
    try:
        path = "jsonpath={.items[*].status.conditions[*].type}"
        selector = f"app.kubernetes.io/instance={release}"
        state = ""
        while "Complete" not in state and "Failed" not in state and time.time() < began + 90:
            time.sleep(0.3)
            state = cluster.kubectl("-n", NAMESPACE, "get", "jobs", "-l", selector, "-o", path)
        log = master_log(cluster, release)
        (WORK / f"{release}.log").write_text(log)
        if "Complete" not in state:
            pods = cluster.kubectl("-n", NAMESPACE, "describe", "pods", check=False)
            raise RuntimeError(f"{release}: {state or 'no end'}: {log[-2500:]} {pods[-2500:]}")
        lines = log.splitlines()
        results = [line.partition("RESULT ")[2] for line in lines if "RESULT {" in line]
        return {
            "helm install": seconds,
            "seconds to the end": round(time.time() - began, 1),
            "result": json.loads(results[-1]) if results else lines[-1].partition(" ")[2],
            "steps": [line.partition("STEP ")[2] for line in lines if "STEP " in line],
        }
    finally:
        cluster.helm("uninstall", release, "--wait", "--timeout", "40s", check=False)


def gaps(steps: list[str]) -> list[float]:
    """Seconds from each kill of a rank to the end of the next attempt's first step."""
    times = {"killed": [], "done": []}
    for line in steps:
        _, word, _, at = line.split()
        if word in times:
            times[word].append(float(at))
    return [round(next(d for d in times["done"] if d > at) - at, 2) for at in times["killed"]]


def attempt(name: str, function: Callable[[], Any]) -> None:
    began = time.monotonic()
    try:
        found[name] = function()
    except Exception as problem:  # noqa: BLE001 - the next run may work
        found[name] = f"FAILED {type(problem).__name__}: {problem}"[-3500:]
    say(f"{name}: {json.dumps(found[name])[:1500]} ({time.monotonic() - began:.1f} s)")


def look(cluster: Cluster, script: Path) -> dict[str, Any]:
    """What the commands show of a worker that uses the GPU."""
    install(cluster, "stay", script, values(launch={"mode": "direct"}, cleanup="Never"))
    try:
        deadline = time.monotonic() + 40
        while "STAYS" not in master_log(cluster, "stay") and time.monotonic() < deadline:
            time.sleep(0.5)
        return {
            "nvidia-smi": cluster.hvdchart("exec", "stay", "0", "--", "nvidia-smi"),
            "top": cluster.hvdchart("top", "stay"),
            "stack": cluster.hvdchart("stack", "stay"),
            "status": cluster.hvdchart("status", "stay"),
        }
    finally:
        cluster.helm("uninstall", "stay", "--wait", "--timeout", "40s", check=False)


def look_at_two(cluster: Cluster, script: Path) -> list[str]:
    """What a user sees who asks for two workers where there is one GPU."""
    made = values(launch={"mode": "direct"})
    made["worker"] = {**made["worker"], "number": 2, "spread": "None"}
    install(cluster, "two", script, made)
    try:
        time.sleep(12)
        return [*cluster.hvdchart("status", "two"), *master_log(cluster, "two").splitlines()[-6:]]
    finally:
        cluster.helm("uninstall", "two", "--wait", "--timeout", "40s", check=False)


def ddp_values() -> dict[str, Any]:
    """Values for the example of DistributedDataParallel, with the digits of scikit-learn."""
    import sklearn

    digits = Path(sklearn.__file__).parent / "datasets/data/digits.csv.gz"
    return values(
        launch={"mode": "direct", "framework": "torch"},
        master={"args": ["python3", "digits_ddp.py", "--data", str(digits)]},
    )


def runs(cluster: Cluster) -> None:
    """Each run of the chart, one after another: there is one GPU."""
    scripts = WORK / "scripts"
    scripts.mkdir(exist_ok=True)
    texts = {"probe.py": PROBE, "lost.py": LOST, "stays.py": STAYS}
    for name, text in texts.items():
        (scripts / name).write_text(text)
    probe = scripts / "probe.py"
    warm = {"mode": "direct", "preload": ["torch", "horovod.torch"]}
    attempt("direct", lambda: run(cluster, "probe", probe, values(launch={"mode": "direct"})))
    attempt("direct, warm ranks", lambda: run(cluster, "warm", probe, values(launch=warm)))

    def lose() -> dict[str, Any]:
        result = run(
            cluster,
            "lost",
            scripts / "lost.py",
            values(launch=warm, master={"backoffLimit": 10}),
        )
        return {**result, "seconds from a kill to the next step": gaps(result["steps"])}

    attempt("a rank is killed three times, keep, warm ranks", lose)
    attempt("mpirun", lambda: run(cluster, "mpi", probe, values(launch={"mode": "mpirun"})))
    example = PROJECT / "examples/digits_ddp.py"
    attempt("DistributedDataParallel", lambda: run(cluster, "ddp", example, ddp_values()))
    attempt("what the commands show", lambda: look(cluster, scripts / "stays.py"))
    attempt("two workers, one GPU", lambda: look_at_two(cluster, probe))


def main() -> int:
    bundle = Path(sys.argv[1])
    unpack(bundle)
    mount_cgroups()
    if PREFIX.exists() and not PACKAGES.exists():
        shutil.copytree(PREFIX, PACKAGES, symlinks=True)
    say("unpacked")
    cluster = Cluster(bundle)
    try:
        cluster.start()
        say("the cluster is up")
        cluster.python("devtools.localkube", "load", str(write_image()))
        cluster.kubectl("create", "namespace", NAMESPACE)
        with device_plugin(cluster):
            found["allocatable nvidia.com/gpu"] = cluster.allocatable()
            say("the GPU is allocatable")
            runs(cluster)
    finally:
        print("RESULT", json.dumps(found), flush=True)
        cluster.python("devtools.localkube", "down", seconds=60)
    failed = [name for name, result in found.items() if str(result).startswith("FAILED")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

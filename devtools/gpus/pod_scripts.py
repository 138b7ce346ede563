"""Scripts that run in the pods: each prints the results that the stage `cluster` reads."""

PROBE = r"""
import glob, json, os, torch, horovod.torch as hvd
hvd.init()
torch.cuda.set_device(hvd.local_rank())
x = torch.full((1 << 20,), hvd.rank() + 1.0, device="cuda")
y = hvd.allreduce(x, op=hvd.Sum)
right = float(y.min()) == float(y.max()) == hvd.size() * (hvd.size() + 1) / 2
shm = os.statvfs("/dev/shm")
print("RESULT " + json.dumps({
    "right": right, "device": torch.cuda.get_device_name(),
    "NCCL is loaded": "libnccl" in open("/proc/self/maps").read(), "user": os.getuid(),
    "device files": sorted(glob.glob("/dev/nvidia*")),
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    "MiB of shared memory": shm.f_blocks * shm.f_bsize >> 20}), flush=True)
"""
# The script loses its rank three times, each time after some seconds of training: an attempt that
# fails before it reports a step is followed by a pause. The measured costs of a kill are in the
# worker's memory, like the state of `keep`.
LOST = r"""
import json, os, signal, time
parts = {"script": time.time()}
import torch, horovod.torch as hvd, keep
from hvd_progress import report
hvd.init()
parts["hvd.init"] = time.time()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 256))
model = model.to("cuda")
parts["model"] = time.time()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
parts["optimizer"] = time.time()
state = keep.State(model=model, optimizer=optimizer)
begin = number = state.restore()
parts["restore"] = time.time()
file = "/dev/shm/kills.json"
killed_at, kills = json.load(open(file)) if os.path.exists(file) else (None, [])
is_last = len(kills) == 2
while time.time() < parts["restore"] + (1 if is_last else 5):
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(number)).to("cuda")
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    state.commit()
    if number == begin and killed_at:
        loss.item()
        parts["step"] = time.time()
        seconds = {part: round(at - killed_at, 2) for part, at in parts.items()}
        kills += [{"seconds to the next step": seconds["step"], "seconds to the end of": seconds}]
    number += 1
    report(number)
if not is_last:
    # A commit is complete some milliseconds after the call.
    time.sleep(0.1)
    with open(file, "w") as out:
        json.dump([time.time(), kills], out)
    os.kill(os.getpid(), signal.SIGKILL)
print("RESULT " + json.dumps(
    {"begin": begin, "loss": float(loss.detach()), "kills": kills}), flush=True)
"""
JAX = r"""
import json, jax, jax.numpy as jnp
jax.distributed.initialize()
target = jax.random.normal(jax.random.key(1), (256, 256))
@jax.jit
def take_step(weights, x):
    loss, slope = jax.value_and_grad(lambda w: jnp.square(x @ w - x @ target).mean())(weights)
    return weights - 30 * slope, loss
weights, losses = jnp.zeros((256, 256)), []
for number in range(20):
    x = jax.random.normal(jax.random.key(number), (512, 256))
    weights, loss = take_step(weights, x)
    losses.append(float(loss))
print("RESULT " + json.dumps({
    "device": jax.devices()[0].device_kind, "platform": jax.default_backend(),
    "on the device": weights.devices() == set(jax.local_devices()[:1]),
    "processes": jax.process_count(), "devices": jax.device_count(),
    "loss": [round(losses[0], 4), round(losses[-1], 4)], "decreases": losses[-1] < losses[0] / 2,
    "version": jax.__version__}), flush=True)
jax.distributed.shutdown()
"""
STAYS = r"""
import time, torch
x = torch.ones(1 << 28, device="cuda")
print("STAYS", flush=True)
until = time.time() + 90
while time.time() < until:
    (x * 2).sum().item()
    time.sleep(0.001)
"""
# Run in a worker: print its metrics of GPUs.
METRICS = """
import urllib.request
with urllib.request.urlopen("http://127.0.0.1:9400/metrics", timeout=10) as page:
    for line in page.read().decode().splitlines():
        if "gpu" in line.lower():
            print(line)
"""

"""What runs in the pods of the proof: each script prints what the cluster's part reads."""

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
# It loses its rank three times, each time after some seconds of training: an attempt that fails
# before it has reported a step is followed by a pause.
LOST = r"""
import json, os, signal, time
parts = {"script": time.time()}
import torch, horovod.torch as hvd, keep
from hvd_progress import report
hvd.init()
parts["hvd.init"] = time.time()
device = os.environ["TEST_DEVICE"]
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 256))
model = model.to(device)
parts["model"] = time.time()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
parts["optimizer"] = time.time()
state = keep.State(model=model, optimizer=optimizer)
begin = number = state.restore()
parts["restore"] = time.time()
print(f"STEP {begin} begins at {time.time():.3f}", flush=True)
is_last = int(os.environ["HVD_ATTEMPT"]) > 3
while time.time() < parts["restore"] + (1 if is_last else 5):
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(number)).to(device)
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    state.commit()
    if number == begin:
        loss.item()
        parts["step"] = time.time()
        print(f"STEP {number} done at {time.time():.3f}", flush=True)
        print("PARTS " + json.dumps(parts), flush=True)
    number += 1
    report(number)
if not is_last:
    # A commit is complete some milliseconds after the call.
    time.sleep(0.1)
    print(f"STEP {number - 1} killed at {time.time():.3f}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
print("RESULT " + json.dumps({"begin": begin, "loss": float(loss.detach())}), flush=True)
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
import os, time, torch
device = os.environ["TEST_DEVICE"]
x = torch.ones(1 << 28 if device == "cuda" else 1 << 20, device=device)
print("STAYS", flush=True)
until = time.time() + 90
while time.time() < until:
    (x * 2).sum().item()
    time.sleep(0.001)
"""
# In a worker: what its metrics say of GPUs.
METRICS = """
import urllib.request
with urllib.request.urlopen("http://127.0.0.1:9400/metrics", timeout=10) as page:
    for line in page.read().decode().splitlines():
        if "gpu" in line.lower():
            print(line)
"""

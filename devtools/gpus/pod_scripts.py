"""Scripts that run in the pods: each prints the results that the stage `cluster` reads."""

PROBE = r"""
import json, torch, horovod.torch as hvd
hvd.init()
torch.cuda.set_device(hvd.local_rank())
x = torch.full((1 << 20,), hvd.rank() + 1.0, device="cuda")
y = hvd.allreduce(x, op=hvd.Sum)
assert float(y.min()) == float(y.max()) == hvd.size() * (hvd.size() + 1) / 2, y
assert "libnccl" in open("/proc/self/maps").read()
print("RESULT " + json.dumps({"device": torch.cuda.get_device_name()}), flush=True)
"""
# The script loses its rank three times, each time after some seconds of training: an attempt that
# fails before it reports a step is followed by a pause. The seconds from a kill to the end of the
# next step are in the worker's memory, like the state of `keep`.
LOST = r"""
import json, os, signal, time
import torch, horovod.torch as hvd, keep
from hvd_progress import report
hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 256))
model = model.to("cuda")
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
state = keep.State(model=model, optimizer=optimizer)
begin = number = state.restore()
restored = time.time()
file = "/dev/shm/kills.json"
killed_at, kills = json.load(open(file)) if os.path.exists(file) else (None, [])
is_last = len(kills) == 2
assert bool(begin) == bool(killed_at), begin
while time.time() < restored + (1 if is_last else 5):
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(number)).to("cuda")
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    state.commit()
    if number == begin and killed_at:
        loss.item()
        kills.append(round(time.time() - killed_at, 2))
    number += 1
    report(number)
if not is_last:
    # A commit is complete some milliseconds after the call.
    time.sleep(0.1)
    with open(file, "w") as out:
        json.dump([time.time(), kills], out)
    os.kill(os.getpid(), signal.SIGKILL)
print("RESULT " + json.dumps({"seconds to the next step": kills}), flush=True)
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
assert jax.default_backend() == "gpu"
assert weights.devices() == set(jax.local_devices()[:1])
assert losses[-1] < losses[0] / 2, losses
print("RESULT " + json.dumps({
    "device": jax.devices()[0].device_kind,
    "loss": [round(losses[0], 4), round(losses[-1], 4)]}), flush=True)
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

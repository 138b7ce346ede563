"""What stands in for a cluster, a program, a library or a GPU, so that a fault can be forced.

| Module | What its fakes stand in for |
| --- | --- |
| `agents` | the agents of workers: they run a script of the test for each request of the master |
| `api` | the API server: objects in memory, watches, and faults on purpose (`faults`) |
| `cluster` | a cluster as `hvdchart` uses it: the same API server, logs, and a kubeconfig |
| `jax` | JAX: lists of numbers, and trees of these |
| `nvml` | NVIDIA's library for the use of GPUs |
| `program` | a program on PATH, such as Helm, kubectl or docker |
| `pytorch` | PyTorch with one GPU |
| `secure` | the API server over HTTPS, without objects: it records its callers |
| `worker` | the port of a worker, which sends what a test says |

`request` and `server` serve HTTP for the API servers.
"""

"""What runs on the machine with the GPU: its own Python, PyTorch and CUDA, and no network."""

"""Checks and measurements on a GPU: `python3 -m devtools.gpus`, on a machine without a network.

bundle.py writes the files that such a machine lacks. Each other program is a stage, or a part of
one, and uses the Python, PyTorch and CUDA of that machine.
"""

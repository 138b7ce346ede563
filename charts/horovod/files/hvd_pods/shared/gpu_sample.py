"""The form of a sample of a GPU, which worker/gpus.py writes and `hvdchart top` reads."""

from __future__ import annotations

import re

# The metric, three labels, and the number.
GPU_SAMPLE = re.compile(
    r'(hvdchart_gpu_(?:utilization_ratio|memory_used_bytes|memory_bytes))\{(gpu="[0-9:]{1,9}"),'
    r'(name="[-A-Za-z0-9 /._]{0,96}"),(uuid="[-A-Za-z0-9 /._]{0,96}")\} '
    r"([0-9]{1,18}(?:\.[0-9]{1,9})?)"
)

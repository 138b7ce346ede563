"""What shows that nothing is missed of what an image was slimmed of: whatever a training script
imports still loads, and a model is compiled by XLA, saved and read again.
"""

from __future__ import annotations

IMPORTS = (
    "import tensorflow as tf, tensorboard.main, horovod.tensorflow.keras, horovod.runner;"
    "import h5py, grpc, tensorflow.lite, numpy.random;"
    "from tensorboard.plugins import core;"
)
KERAS_3 = (
    f"{IMPORTS}"
    "m = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)]);"
    "m.compile('sgd', tf.keras.losses.MeanSquaredError(), jit_compile=True);"
    "import numpy as np; m.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0);"
    "[m.save(f'/tmp/m{s}') or tf.keras.models.load_model(f'/tmp/m{s}')"
    " for s in ('.h5', '.keras')];"
    "m.export('/tmp/m')"
)
TORCH = (
    "import torch, horovod.torch, horovod.runner, triton, triton.profiler;"
    "import torch.distributed, torch.onnx, torch.utils.cpp_extension, torch.profiler;"
    "import numpy.random, numpy.testing, networkx;"
    "torch.linalg.inv(torch.eye(3) * 2); torch.jit.script(torch.nn.Linear(2, 2));"
    "torch.compile(torch.nn.Linear(2, 2), backend='eager')(torch.ones(1, 2))"
)

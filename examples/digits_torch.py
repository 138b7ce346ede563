"""Trains a small PyTorch network on scikit-learn's handwritten digits, on all ranks of a run.

    mpirun -np 2 python digits_torch.py --epochs 10

Comments that start with "Horovod:" mark the operations that turn a PyTorch script into a Horovod
script. digits.py is the same example for Keras.

Each step is kept in memory, and now and then in a checkpoint. The last line that rank 0 prints is
`RESULT` and a JSON object. Exit status: 0 if training succeeded; 1 if the accuracy is below
--target-accuracy, the weights of ranks differ, or the data cannot be read; 2 if an argument is
invalid.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

import horovod.torch as hvd
import keep
import numpy as np
import torch
from hvd_progress import report
from torch import nn

# Images that no rank trains on, of the 1797 in the file: they measure the accuracy.
HELD_OUT = 360
# The split is the same on every rank and in every run: a resumed run must not train on the images
# that measure its accuracy.
SPLIT_SEED = 0


def load_digits(file: Path, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Read scikit-learn's file and return (images, labels).

    Images are float32 of shape (n, 1, 8, 8), from 0 to 1; labels are int64 of shape (n,). The
    first HELD_OUT of them are for the accuracy, the others for training.
    """
    rows = np.loadtxt(file, delimiter=",")
    rows = np.random.default_rng(SPLIT_SEED).permutation(rows)
    images = torch.tensor(rows[:, :-1] / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(rows[:, -1], dtype=torch.int64)
    return images.to(device), labels.to(device)


def make_model() -> nn.Module:
    """Make a small convolutional network: (batch, 1, 8, 8) -> logits of shape (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding="same"),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def say(text: str) -> None:
    """Print on rank 0 only, and flush, so that a reader who follows the log sees it at once."""
    if hvd.rank() == 0:
        print(text, flush=True)


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all weights, in the model's order."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()


def train(options: argparse.Namespace) -> dict[str, object]:
    """Train, evaluate, and return the result to print. The accuracy is the same on all ranks."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        # Horovod: each rank uses a GPU of its own.
        device = torch.device("cuda", hvd.local_rank())
    images, labels = load_digits(options.data, device)
    torch.manual_seed(options.seed)
    model = make_model().to(device)
    # A step processes the batches of all ranks, so the learning rate is scaled by their number.
    rate = options.learning_rate * hvd.size()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    # Horovod: the optimizer averages the gradients of all ranks before it applies them.
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

    # All ranks go on with the newest state, or start with that of rank 0.
    state = keep.State(model=model, optimizer=optimizer, output=options.output)
    state.restore()
    # A step takes this many images, over all ranks.
    step = options.batch_size * hvd.size()
    steps = (len(labels) - HELD_OUT) // step
    done = state.epochs(steps)
    say(f"resumed after epoch {done}" if done else "training from the start")
    # The checkpoint may come from a run with another number of ranks.
    optimizer.param_groups[0]["lr"] = rate

    losses = []
    for epoch in range(done, options.epochs):
        # The order differs between epochs but not between ranks.
        generator = torch.Generator().manual_seed(options.seed + epoch)
        shuffled = torch.randperm(len(labels) - HELD_OUT, generator=generator)
        batches = shuffled[: steps * step].reshape(-1, step)
        taken = []
        # The state may be in the middle of an epoch.
        for number in range(state.step + 1, (epoch + 1) * steps + 1):
            batch = batches[(number - 1) % steps]
            # Each rank takes its share of the step.
            mine = HELD_OUT + batch[hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
            loss.backward()
            optimizer.step()
            taken.append(loss.detach().cpu())
            state.commit()
            report(number, steps * options.epochs, loss=float(loss))
        # Horovod: average the loss over all ranks.
        losses.append(float(hvd.allreduce(torch.stack(taken).mean())))
        say(f"epoch {epoch + 1}/{options.epochs}: loss {losses[-1]:.4f}")
    state.save()

    with torch.no_grad():
        predicted = model(images[:HELD_OUT]).argmax(1)
    right = predicted == labels[:HELD_OUT]
    digest = weights_digest(model)
    return {
        "accuracy": round(float(right.float().mean()), 4),
        "losses": losses,
        "ranks": hvd.size(),
        "epochs": options.epochs,
        "resumed_after_epoch": done,
        "weights": digest,
        # If the gradients are averaged, the weights are equal bit for bit.
        "ranks_agree": len(set(hvd.allgather_object(digest))) == 1,
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument(
        "--learning-rate", type=float, default=0.001, help="multiplied by the number of ranks"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--target-accuracy", type=float, default=0.95, help="below it, the exit status is 1"
    )
    data = Path(__file__).with_name("digits.csv.gz")
    parser.add_argument("--data", type=Path, default=data, help="scikit-learn's digits.csv.gz")
    parser.add_argument(
        "--output",
        type=Path,
        default=os.environ.get("OUTPUT_PATH") or None,
        help="folder for the checkpoint, from which a run resumes (default: $OUTPUT_PATH)",
    )
    return parser.parse_args()


def main() -> int:
    """Train and print the result. Returns the exit status."""
    options = parse_arguments()
    # Horovod: connect to the other ranks.
    hvd.init()
    # Fails before any work if the ranks cannot communicate.
    ranks = int(hvd.allreduce(torch.ones(()), op=hvd.Sum))
    say(f"first allreduce: {ranks} ranks")

    result = train(options)
    ok = bool(result["ranks_agree"]) and float(str(result["accuracy"])) >= options.target_accuracy
    say(f"held-out accuracy: {result['accuracy']}")
    if not ok:
        say(f"FAILED: ranks with different weights, or an accuracy below {options.target_accuracy}")
    say(f"RESULT {json.dumps({**result, 'ok': ok})}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

"""Trains a small PyTorch network on images of digits with DistributedDataParallel.

    torchrun --nproc-per-node 2 digits_ddp.py
    hvdchart run digits_ddp.py

The images are made up, or those of scikit-learn's file, which --data names. The script has nothing
of this project: it reads what torchrun sets. After each epoch rank 0 writes a checkpoint to
--output, from which a later run resumes. Its last line is `RESULT` and a JSON object. Exit status:
0 if training succeeded; 1 if the accuracy is below --target-accuracy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# How many images scikit-learn's file has, and how many of them measure the accuracy: no rank trains
# on those.
IMAGES = 1797
HELD_OUT = 360
# The split is the same on every rank and in every run: a resumed run must not train on the images
# that measure its accuracy.
SPLIT_SEED = 0
LEARNING_RATE = 0.001


def make_rows() -> np.ndarray:
    """Make up images as in scikit-learn's file: each digit has a pattern, which noise changes."""
    random = np.random.default_rng(SPLIT_SEED)
    patterns = random.uniform(0, 16, (10, 64))
    labels = np.arange(IMAGES) % len(patterns)
    images = patterns[labels] + random.normal(0, 4, (IMAGES, 64))
    return np.column_stack([images.clip(0, 16), labels])


def load_digits(file: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """Read scikit-learn's file, or make up images, and return (training, held out).

    Each row is an image: 64 pixels from 0 to 16, and the label. Images become float32 of shape
    (n, 1, 8, 8), from 0 to 1; labels become int64 of shape (n,).
    """
    rows = np.loadtxt(file, delimiter=",") if file else make_rows()
    rows = np.random.default_rng(SPLIT_SEED).permutation(rows)
    images = torch.tensor(rows[:, :-1] / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(rows[:, -1], dtype=torch.int64)
    training = TensorDataset(images[HELD_OUT:], labels[HELD_OUT:])
    held_out = TensorDataset(images[:HELD_OUT], labels[:HELD_OUT])
    return training, held_out


def make_model() -> nn.Module:
    """Make a small convolutional network: (batch, 1, 8, 8) -> logits of shape (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def say(text: str) -> None:
    """Print on rank 0 only, and flush, so that a reader who follows the log sees it at once."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def save(file: Path, state: dict[str, object]) -> None:
    """Replace the checkpoint: if rank 0 dies while it saves, the previous one remains."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".tmp")
    torch.save(state, partial)
    partial.replace(file)


def train(options: argparse.Namespace, device: torch.device) -> dict[str, object]:
    """Train, evaluate, and return the result to print."""
    training, held_out = load_digits(options.data)
    torch.manual_seed(options.seed)
    model = make_model().to(device)
    # A step processes the batches of all ranks, so the learning rate is scaled by their number.
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE * dist.get_world_size())

    checkpoint = options.output / "digits_ddp.pt" if options.output else None
    done = 0
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["epochs"]
    # No rank writes the next checkpoint before all have read this one.
    dist.barrier()
    say(f"resumed after epoch {done}" if done else "training from the start")

    # Sends rank 0's weights to all ranks, and averages their gradients in each step.
    parallel = DistributedDataParallel(model)
    sampler = DistributedSampler(training, seed=options.seed)
    loader = DataLoader(training, options.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(done, options.epochs):
        # Without this, the order would be the same in all epochs.
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            logits = parallel(images.to(device))
            loss = nn.functional.cross_entropy(logits, labels.to(device))
            loss.backward()
            optimizer.step()
        # The mean over all ranks of the loss of their last batch.
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        say(f"epoch {epoch + 1}/{options.epochs}: loss {float(mean):.4f}")
        if checkpoint and dist.get_rank() == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epochs": epoch + 1,
            }
            save(checkpoint, state)

    images, labels = held_out.tensors
    with torch.no_grad():
        predicted = model(images.to(device)).argmax(1).cpu()
    right = predicted == labels
    return {
        "accuracy": round(float(right.float().mean()), 4),
        "ranks": dist.get_world_size(),
        "epochs": options.epochs,
        "resumed_after_epoch": done,
    }


def main() -> int:
    """Train and print the result. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target-accuracy", type=float, default=0.95)
    parser.add_argument("--data", type=Path, help="scikit-learn's file digits.csv.gz")
    parser.add_argument("--output", type=Path, default=os.environ.get("OUTPUT_PATH") or None)
    options = parser.parse_args()
    if torch.cuda.is_available():
        dist.init_process_group("nccl")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    else:
        dist.init_process_group("gloo")
        device = torch.device("cpu")
    result = train(options, device)
    ok = float(str(result["accuracy"])) >= options.target_accuracy
    say(f"RESULT {json.dumps({**result, 'ok': ok})}")
    dist.destroy_process_group()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

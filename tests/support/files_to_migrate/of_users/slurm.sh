#!/bin/bash
#SBATCH --job-name=resnet-n16
#SBATCH --nodes=2   # with --nodes=4 it was no faster
#SBATCH --ntasks-per-node=8
#SBATCH -o logs/run-n16
# Two nodes of eight GPUs.
set -euo pipefail
module load cuda/12
cd /work/imagenet
export NCCL_DEBUG=INFO

mpirun -np $SLURM_NTASKS -bind-to none -map-by slot \
    -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH \
    -mca pml ob1 \
    python train.py --batch-size 64 \
        --name 'a b'

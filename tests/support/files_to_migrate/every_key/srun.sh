#!/bin/bash
#SBATCH -N 2 -n 8 --gpus-per-node=4
#SBATCH --time=01:00:00
srun --mpi=pmix python train.py --epochs 3

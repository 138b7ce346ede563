#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --rdzv-backend=c10d --rdzv_endpoint $MASTER:29500 \
  --max-restarts 3 train.py --lr 0.1

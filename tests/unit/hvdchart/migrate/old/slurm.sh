#!/bin/bash
#SBATCH --nodes=2
# Two nodes of eight GPUs.
set -euo pipefail
module load cuda/12
cd /work/imagenet
GPUS=8
HOSTS="a:$GPUS,b:$GPUS"
export NCCL_DEBUG=INFO
export OMPI_MCA_btl_tcp_if_include=eth0
LAUNCH_OPTIONS="-bind-to none -map-by slot"

mpirun -np 16 -H ${HOSTS} $LAUNCH_OPTIONS \
    -x NCCL_DEBUG -x LD_LIBRARY_PATH \
    -mca pml ob1 \
    python train.py --batch-size ${BATCH:-64} \
        --name 'a b' > train.log 2>&1

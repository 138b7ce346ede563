#!/bin/bash
#SBATCH -N 2
export NCCL_DEBUG=INFO OMPI_MCA_pml=ob1
export TOKEN=$(cat token)
source env.sh
cd /work
make data
BATCH=32; STEPS=128
UNUSED=1
time mpirun -np 8 -H a:4,b:4 -x NCCL_DEBUG --allow-run-as-root --tag-output -bind-to none \
  python t.py $BATCH ${LR:-0.1} $STEPS < in > out 2>&1
echo done

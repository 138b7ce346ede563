#!/bin/bash
#SBATCH -N 2
export NCCL_DEBUG=INFO OMPI_MCA_pml=ob1
export TOKEN=$(cat token)
source env.sh
cd /work
make data
BATCH=32; STEPS=128
UNUSED=1
time docker run --rm -it --init --privileged --name x --hostname y --ulimit memlock=-1 --runtime nvidia \
  -p 1:2 --ipc host --restart no --pull always --log-driver none --log-opt a=b --security-opt c \
  --add-host d:e -l f=g --env-file vars --entrypoint /run.sh --device /dev/infiniband \
  --cap-add IPC_LOCK --network host --shm-size 1.5g -u 1000:100 --memory 512m -w /w \
  --gpus '"device=0,1"' -e A=1 -v /d:/data:ro -v /d:/more --mount source=/m,dst=/m \
  team/image:2 mpirun -np 8 -H a:4,b:4 -x NCCL_DEBUG --allow-run-as-root --tag-output -bind-to none \
  python t.py $BATCH ${LR:-0.1} $STEPS < in > out 2>&1
echo done

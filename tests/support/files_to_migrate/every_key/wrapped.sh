#!/bin/sh
if_up=1; set -x
pushd /data
: ---
printf x
mkdir -p out
readonly R=3
source env.sh
TOKEN=secret
#SBATCH --nodes=8
mpirun -n 2 -x OMPI_MCA_a --hostfile hosts -npernode 2 t 5

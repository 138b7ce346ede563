#!/bin/sh
if_up=1; set -x
pushd /data
eval "$(conda shell)"
: --- ; ### ; =====
printf x
mkdir -p out
readonly R=3; typeset -i N=2; local L=4
let M=N+1
sudo -E env -i PATH=/bin OMPI_MCA_a=b bash -ec 'set -e; sleep 3s; /usr/sbin/sshd -D; S=5; mpirun -n 2 -x OMPI_MCA_a --hostfile hosts -npernode 2 t $S' 2> errors

export I_MPI_FABRICS=shm
export A=1 "B=2"
unset B
mpiexec.hydra -n 4 -ppn 2 -genv C 1 -genvlist A,D -bind-to core:1 python t.py | tee log

export I_MPI_DEBUG=5
mpiexec.hydra -n 16 -ppn 2 -hosts node1,node2,node3,node4,node5,node6,node7,node8 -genv OMP_NUM_THREADS 20 -genv KMP_AFFINITY granularity=fine,compact,1,0 -genvall -l python unet.py --data /data

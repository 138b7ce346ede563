mpirun -np 2 -H localhost:2 -mca plm_rsh_args "-p 22" -mca btl self --mca plm_rsh_agent ssh -- t

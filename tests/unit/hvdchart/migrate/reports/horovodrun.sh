NP=4; NODES=a:2,b:2
test -n "$X" && NODES=$X
nohup env OMP_NUM_THREADS=4 horovodrun -np $NP --min-np 2 --max-np 8 --host-discovery-script ./d.sh \
  --slots-per-host 2 --network-interface eth0 -p 22 --timeline-filename /out/t.json python "a b.py" &

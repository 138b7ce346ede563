horovodrun -np 4 --min-np 2 --max-np 8 --host-discovery-script ./d.sh \
  --slots-per-host 2 --network-interface eth0 -p 22 --timeline-filename /out/t.json python "a b.py"

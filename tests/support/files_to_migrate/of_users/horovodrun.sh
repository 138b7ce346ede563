horovodrun -np 8 --min-num-proc 4 --max-num-proc 16 --slots-per-host 4 --host-discovery-script ./discover.sh \
  --network-interfaces eth0 --elastic-timeout 120 python train.py

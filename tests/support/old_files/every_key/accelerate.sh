accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank 0 \
  --main_process_ip a --mixed_precision bf16 -m team.train --epochs 3

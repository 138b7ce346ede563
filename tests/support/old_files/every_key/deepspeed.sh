deepspeed --num_nodes 2 --num_gpus 8 --hostfile hosts --master_port 29500 train.py --deepspeed_config ds.json

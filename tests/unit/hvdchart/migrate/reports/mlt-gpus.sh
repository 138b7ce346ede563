mlt init --template horovod --skip-crd-check lm
mlt template_config set gpus 1
mlt template_config set num_nodes 2
mlt template_config set num_workers_per_node 2
mlt template_config set node_selector a
mlt template_config set output_path /home/nfsshare/mnist/out
mlt logs

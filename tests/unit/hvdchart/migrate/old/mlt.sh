mlt init --template=horovod --registry registry.example/ann --namespace ann unet
cd unet
mlt template_config set num_nodes 4
mlt template_config set num_workers_per_node 2
mlt template_config set sockets_per_node 2
mlt template_config set physical_cores 14
mlt template_config set data_path /mnt/brats
mlt template_config set output_path /mnt/brats/results
mlt template_config set batch_size 64
mlt build && mlt deploy --logs

mlt init --template=horovod --namespace ml --registry=registry.example/team --enable-sync lm
cd lm
mlt template_config set num_nodes 2
mlt template_config set num_workers_per_node 4
mlt template_config set sockets_per_node 2
mlt template_config set physical_cores 8
mlt template_config set memory 4Gi
mlt template_config set data_path /data
mlt template_config set output_path /out
mlt build
mlt deploy

docker run --rm -it --gpus all --shm-size=16g --network=host -v /mnt/data:/data:ro -v /mnt/out:/out -e EPOCHS=90 \
  horovod/horovod:0.28.1 horovodrun -np 4 -H localhost:4 --timeline-filename /out/t.json python /data/train.py

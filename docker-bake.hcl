# Generated from images/versions.yaml by `make generate`: builds the images with Docker alone.
#
#   docker buildx bake examples --load
#   REGISTRY=registry.example/team/ docker buildx bake cpu --push
#
# docs/images.md describes the images.

# What is in front of each name, with the slash at its end.
variable "REGISTRY" {
  default = ""
}

group "default" {
  targets = ["cpu", "cpu-2-15", "pytorch", "examples", "examples-2-15", "examples-pytorch", "ssh"]
}

group "all" {
  targets = ["cpu", "cpu-2-15", "pytorch", "cuda", "cuda-next", "pytorch-cuda", "examples", "examples-2-15", "examples-pytorch", "ssh"]
}

target "cpu-build" {
  context = "images"
  dockerfile = "common/Dockerfile"
  args = {
    "BASE_IMAGE" = "docker.io/library/debian:bookworm-slim"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.11"
    "OPENMPI_VERSION" = "4.1.4"
    "TENSORFLOW_VERSION" = "2.21.0"
    "KERAS_VERSION" = "3.15.1"
    "IMAGE" = "cpu"
    "PRELOAD" = ""
    "DRIVER_CAPABILITIES" = ""
    "MODULES" = "tensorflow horovod.tensorflow"
    "PACKAGES" = "ca-certificates openmpi-bin openssh-client openssh-server python3"
    "FRAMEWORK" = "tensorflow"
    "FEATURES" = "mpi,gloo"
    "VERSIONS" = "horovod=0.28.1 python=3.11 openmpi=4.1.4 tensorflow=2.21.0 keras=3.15.1"
  }
  platforms = ["linux/amd64"]
}

target "cpu" {
  contexts = {
    "parent" = "target:cpu-build"
  }
  dockerfile-inline = "FROM parent\nENV TF_ENABLE_ONEDNN_OPTS=1\n"
  labels = {
    "org.opencontainers.image.title" = "horovod-cpu"
    "org.opencontainers.image.version" = "0.28.1-tf2.21.0"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-cpu:0.28.1-tf2.21.0"]
}

target "cpu-2-15-build" {
  context = "images"
  dockerfile = "common/Dockerfile"
  args = {
    "BASE_IMAGE" = "docker.io/library/debian:bookworm-slim"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.11"
    "OPENMPI_VERSION" = "4.1.4"
    "TENSORFLOW_VERSION" = "2.15.1"
    "TENSORFLOW_PACKAGE" = "tensorflow-cpu"
    "MPI_FROM" = "debian"
    "ALLOCATOR" = "glibc"
    "MARCH" = "x86-64"
    "IMAGE" = "cpu-2.15"
    "PRELOAD" = ""
    "DRIVER_CAPABILITIES" = ""
    "MODULES" = "tensorflow horovod.tensorflow"
    "PACKAGES" = "ca-certificates openmpi-bin openssh-client openssh-server python3"
    "FRAMEWORK" = "tensorflow"
    "FEATURES" = "mpi,gloo"
    "VERSIONS" = "horovod=0.28.1 python=3.11 openmpi=4.1.4 tensorflow=2.15.1"
  }
  platforms = ["linux/amd64"]
}

target "cpu-2-15" {
  contexts = {
    "parent" = "target:cpu-2-15-build"
  }
  dockerfile-inline = "FROM parent\nENV TF_ENABLE_ONEDNN_OPTS=1\n"
  labels = {
    "org.opencontainers.image.title" = "horovod-cpu-2.15"
    "org.opencontainers.image.version" = "0.28.1-tf2.15.1"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-cpu-2.15:0.28.1-tf2.15.1"]
}

target "pytorch-build" {
  context = "images"
  dockerfile = "common/Dockerfile"
  args = {
    "BASE_IMAGE" = "docker.io/library/debian:trixie-slim"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.13"
    "OPENMPI_VERSION" = "5.0.7"
    "TORCH_VERSION" = "2.6.0"
    "IMAGE" = "pytorch"
    "PRELOAD" = ""
    "DRIVER_CAPABILITIES" = ""
    "MODULES" = "torch horovod.torch"
    "PACKAGES" = "ca-certificates libopenblas0-pthread openmpi-bin openssh-client openssh-server python3 python3-torch"
    "FRAMEWORK" = "torch"
    "FEATURES" = "mpi,gloo"
    "VERSIONS" = "horovod=0.28.1 python=3.13 openmpi=5.0.7 torch=2.6.0"
  }
  platforms = ["linux/amd64"]
}

target "pytorch" {
  contexts = {
    "parent" = "target:pytorch-build"
  }
  dockerfile-inline = "FROM parent\nENV USE_LIBUV=0\n"
  labels = {
    "org.opencontainers.image.title" = "horovod-pytorch"
    "org.opencontainers.image.version" = "0.28.1-torch2.6.0"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-pytorch:0.28.1-torch2.6.0"]
}

target "cuda" {
  context = "images"
  dockerfile = "common/Dockerfile"
  args = {
    "BASE_IMAGE" = "docker.io/library/debian:bookworm-slim"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.11"
    "OPENMPI_VERSION" = "4.1.4"
    "TENSORFLOW_VERSION" = "2.15.1"
    "NVIDIA_NCCL_CU12_VERSION" = "2.16.5"
    "COMPUTE_CAPABILITIES" = "70,75,80,86,89,90"
    "IMAGE" = "cuda"
    "PRELOAD" = ""
    "DRIVER_CAPABILITIES" = "compute,utility"
    "MODULES" = ""
    "PACKAGES" = "ca-certificates openmpi-bin openssh-client openssh-server python3"
    "FRAMEWORK" = "tensorflow"
    "FEATURES" = "mpi,gloo,nccl"
    "VERSIONS" = "horovod=0.28.1 python=3.11 openmpi=4.1.4 tensorflow=2.15.1 nvidia-nccl-cu12=2.16.5"
  }
  labels = {
    "org.opencontainers.image.title" = "horovod-cuda"
    "org.opencontainers.image.version" = "0.28.1-tf2.15.1"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-cuda:0.28.1-tf2.15.1"]
}

target "cuda-next" {
  context = "images"
  dockerfile = "common/Dockerfile"
  args = {
    "BASE_IMAGE" = "docker.io/library/debian:bookworm-slim"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.11"
    "OPENMPI_VERSION" = "4.1.4"
    "TENSORFLOW_VERSION" = "2.21.0"
    "KERAS_VERSION" = "3.15.1"
    "NVIDIA_NCCL_CU12_VERSION" = "2.32.3"
    "COMPUTE_CAPABILITIES" = "75,80,86,89,90"
    "IMAGE" = "cuda-next"
    "PRELOAD" = ""
    "DRIVER_CAPABILITIES" = "compute,utility"
    "MODULES" = ""
    "PACKAGES" = "ca-certificates openmpi-bin openssh-client openssh-server python3"
    "FRAMEWORK" = "tensorflow"
    "FEATURES" = "mpi,gloo,nccl"
    "VERSIONS" = "horovod=0.28.1 python=3.11 openmpi=4.1.4 tensorflow=2.21.0 keras=3.15.1 nvidia-nccl-cu12=2.32.3"
  }
  labels = {
    "org.opencontainers.image.title" = "horovod-cuda-next"
    "org.opencontainers.image.version" = "0.28.1-tf2.21.0"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-cuda-next:0.28.1-tf2.21.0"]
}

target "pytorch-cuda" {
  context = "images"
  dockerfile = "common/Dockerfile"
  args = {
    "BASE_IMAGE" = "docker.io/library/debian:bookworm-slim"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.11"
    "OPENMPI_VERSION" = "4.1.4"
    "TORCH_VERSION" = "2.15.0"
    "CUDA_TOOLKIT_VERSION" = "13.2.2"
    "NVIDIA_NCCL_CU13_VERSION" = "2.30.7"
    "COMPUTE_CAPABILITIES" = "75,80,86,89,90,100,120"
    "IMAGE" = "pytorch-cuda"
    "PRELOAD" = ""
    "DRIVER_CAPABILITIES" = "compute,utility"
    "MODULES" = ""
    "PACKAGES" = "ca-certificates openmpi-bin openssh-client openssh-server python3"
    "FRAMEWORK" = "torch"
    "FEATURES" = "mpi,gloo,nccl"
    "VERSIONS" = "horovod=0.28.1 python=3.11 openmpi=4.1.4 torch=2.15.0 cuda-toolkit=13.2.2 nvidia-nccl-cu13=2.30.7"
  }
  labels = {
    "org.opencontainers.image.title" = "horovod-pytorch-cuda"
    "org.opencontainers.image.version" = "0.28.1-torch2.15.0"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-pytorch-cuda:0.28.1-torch2.15.0"]
}

target "examples" {
  context = "."
  dockerfile = "examples/Dockerfile"
  contexts = {
    "parent" = "target:cpu"
  }
  args = {
    "BASE_IMAGE" = "parent"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.11"
    "OPENMPI_VERSION" = "4.1.4"
    "TENSORFLOW_VERSION" = "2.21.0"
    "KERAS_VERSION" = "3.15.1"
    "SCIKIT_LEARN_VERSION" = "1.7.2"
    "NILEARN_VERSION" = "0.14.1"
    "NIBABEL_VERSION" = "5.4.2"
  }
  labels = {
    "org.opencontainers.image.title" = "horovod-examples"
    "org.opencontainers.image.version" = "0.28.1-tf2.21.0"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-examples:0.28.1-tf2.21.0"]
}

target "examples-2-15" {
  context = "."
  dockerfile = "examples/Dockerfile"
  contexts = {
    "parent" = "target:cpu-2-15"
  }
  args = {
    "BASE_IMAGE" = "parent"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.11"
    "OPENMPI_VERSION" = "4.1.4"
    "TENSORFLOW_VERSION" = "2.15.1"
    "SCIKIT_LEARN_VERSION" = "1.7.2"
    "NILEARN_VERSION" = "0.14.1"
    "NIBABEL_VERSION" = "5.4.2"
  }
  labels = {
    "org.opencontainers.image.title" = "horovod-examples-2.15"
    "org.opencontainers.image.version" = "0.28.1-tf2.15.1"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-examples-2.15:0.28.1-tf2.15.1"]
}

target "examples-pytorch" {
  context = "."
  dockerfile = "examples/Dockerfile"
  contexts = {
    "parent" = "target:pytorch"
  }
  args = {
    "BASE_IMAGE" = "parent"
    "HOROVOD_VERSION" = "0.28.1"
    "PYTHON_VERSION" = "3.13"
    "OPENMPI_VERSION" = "5.0.7"
    "TORCH_VERSION" = "2.6.0"
    "SCIKIT_LEARN_VERSION" = "1.7.2"
    "NILEARN_VERSION" = "0.14.1"
    "NIBABEL_VERSION" = "5.4.2"
  }
  labels = {
    "org.opencontainers.image.title" = "horovod-examples-pytorch"
    "org.opencontainers.image.version" = "0.28.1-torch2.6.0"
  }
  platforms = ["linux/amd64"]
  tags = ["${REGISTRY}horovod-examples-pytorch:0.28.1-torch2.6.0"]
}

target "ssh" {
  context = "images/ssh"
  dockerfile = "Dockerfile"
  args = {
    "BASE_IMAGE" = "docker.io/library/debian:trixie-slim"
    "OPENSSH_VERSION" = "10.0p1-7-deb13u4"
  }
  labels = {
    "org.opencontainers.image.title" = "horovod-ssh"
    "org.opencontainers.image.version" = "10.0p1-7-deb13u4"
  }
  platforms = ["linux/amd64", "linux/arm64"]
  tags = ["${REGISTRY}horovod-ssh:10.0p1-7-deb13u4"]
}

# updates.py builds this for its output and removes the image.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=ca.crt \
    export APT_CONFIG=/run/secrets/apt.conf && apt-get update -qq && apt-get --simulate dist-upgrade

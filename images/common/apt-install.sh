#!/bin/sh
# apt-install.sh PACKAGE...: installs Debian packages and leaves nothing of the installing behind.
# Shell, because Python is among the first things it installs.
set -eu
# What only this machine needs to reach its mirrors (proxy, CA) is mounted while the image is built.
if [ -s /run/secrets/apt.conf ]; then APT_CONFIG=/run/secrets/apt.conf; export APT_CONFIG; fi
export DEBIAN_FRONTEND=noninteractive

apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log >&2; exit 1; }
apt-get clean
rm -rf /tmp/apt.log /run/adduser /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old \
    /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/lib/dpkg/*-old \
    /usr/share/man /usr/share/info /usr/share/lintian /usr/share/bug
# Licences stay with what they cover.
find /usr/share/doc -type f -not -name copyright -delete
# openssh-server makes host keys when it is installed: the same private key in every copy of an image is no secret.
rm -f /etc/ssh/ssh_host_*

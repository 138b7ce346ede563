#!/bin/sh
# apt-install.sh PACKAGE...: installs Debian packages and removes what only the installation needs.
# A shell script, because it also installs Python.
set -eu
# The build mounts what this machine needs to reach its mirrors (proxy, CA).
if [ -s /run/secrets/apt.conf ]; then APT_CONFIG=/run/secrets/apt.conf; export APT_CONFIG; fi
export DEBIAN_FRONTEND=noninteractive

apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log >&2; exit 1; }
apt-get clean
rm -rf /tmp/apt.log /run/adduser /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old \
    /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/lib/dpkg/*-old \
    /usr/share/man /usr/share/info /usr/share/lintian /usr/share/bug
# Licences stay in the image.
find /usr/share/doc -type f -not -name copyright -delete

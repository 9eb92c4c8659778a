#!/usr/bin/env bash
# Install the Debian packages of a desktop and of the development set-up that are missing; quick
# when none is.
set -euo pipefail
cd "$(dirname "$0")"
lists=(apt-packages.txt ../legato/desktop/image/packages.txt)

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian machine: install the equivalents of what tools/apt-packages.txt and" \
    "legato/desktop/image/packages.txt list by hand, then run: make setup SKIP_PACKAGES=1" >&2
  exit 1
fi
mapfile -t wanted < <(sed 's/#.*//' "${lists[@]}" | xargs -n1)
installed=$(dpkg-query --show --showformat='${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" \
  2>/dev/null | awk '$1 == "ii" { print $2 }' || true)
mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort) <(sort <<<"$installed"))
((${#missing[@]})) || exit 0

if ((EUID == 0)); then
  as_root=()
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  echo "Debian packages are missing. As root: apt-get install --no-install-recommends" \
    "${missing[*]}" >&2
  exit 1
fi
echo "Installing Debian packages: ${missing[*]}"
as_root+=(env DEBIAN_FRONTEND=noninteractive timeout --foreground --kill-after=30 1500)
apt_get=("${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
# An earlier run that was cut short leaves packages unpacked, which apt-get refuses to work with.
"${as_root[@]}" dpkg --configure -a </dev/null
"${apt_get[@]}" update </dev/null
"${apt_get[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null

#!/bin/sh
# In the image, as root, once its packages are installed: the agent's user, and no leftovers.
set -eu
getent group user >/dev/null || groupadd --gid 1000 user
id user >/dev/null 2>&1 || useradd --uid 1000 --gid 1000 --home-dir /home/user --create-home --shell /bin/bash user
mkdir -p /run/user/1000 /run/desk /opt/legato
chown 1000:1000 /run/user/1000 /run/desk
chmod 0700 /run/user/1000 /run/desk /home/user
# The browser's start script reads this directory; ours says: no questions at the first start.
rm -rf /etc/chromium.d
ln -s /opt/legato/chromium.d /etc/chromium.d
echo 6c656761746f6c6f63616c6465736b74 >/etc/machine-id
# A font cache is believed only if it has its directory's time, of which archives keep whole seconds.
# Some directories are links to others.
for fonts in /usr/share/fonts /usr/local/share/fonts; do
	if [ -d "$fonts" ]; then find -L "$fonts" -type d -exec touch -d 2000-01-01 {} +; fi
done
fc-cache --system-only
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/log/*.log

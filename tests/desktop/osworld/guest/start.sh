#!/bin/sh
# The guest's session: what OSWorld's virtual machine has up when it is handed out.
[ -e /proc/self ] || mount -t proc proc /proc
mkdir -p /tmp/.X11-unix /var/tmp /run/user/1000
chmod 1777 /tmp /tmp/.X11-unix /var/tmp
chown user:user /run/user/1000
export DISPLAY=:0 HOME=/home/user USER=user XDG_RUNTIME_DIR=/run/user/1000 NO_AT_BRIDGE=1
export XAUTHORITY=/home/user/.Xauthority PYTHONPATH=/opt/site PATH=/usr/local/bin:/usr/bin:/bin
export GDK_BACKEND=x11 XDG_SESSION_TYPE=x11 LANG=C.UTF-8
cd /home/user || exit 1
as_user() { setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }
as_user touch /home/user/.Xauthority
as_user Xvfb :0 -screen 0 "${SCREEN:-1280x720}x24" -nolisten tcp -maxclients 2048 -extension GLX &
while [ ! -S /tmp/.X11-unix/X0 ]; do sleep 0.05; done
as_user openbox --startup "touch /tmp/managed" &
while [ ! -e /tmp/managed ]; do sleep 0.05; done
exec setpriv --reuid 1000 --regid 1000 --clear-groups \
  dbus-run-session -- python3 /opt/server.py

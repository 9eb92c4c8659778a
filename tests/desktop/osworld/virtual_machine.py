"""Debian's kernel with a first RAM disk of ours, for QEMU guests in software emulation.

:func:`kernel` fetches the packages and keeps what is needed; :func:`tiny` is a guest that answers
HTTP on port 5000 and nothing else, which boots in seconds; :func:`disk` is the whole guest of
:mod:`.guest_image`.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.desktop.osworld.guest_image import rootfs

MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "ext4")
DISK_MIB = 2048

_INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules); do insmod $module; done
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
"""
_TINY = """\
mkdir -p /www/cgi-bin /state; cd /www; echo ready > screenshot; touch terminal
printf '#!/bin/sh\\necho; touch /state/$QUERY_STRING; ls /state\\n' > cgi-bin/mark
chmod +x cgi-bin/mark
exec httpd -f -p 5000 -h /www
"""
_WHOLE = """\
mount -t ext4 /dev/vda /root; mount --move /proc /root/proc; mount --move /sys /root/sys
mount --move /dev /root/dev; mkdir -p /root/dev/shm; mount -t tmpfs shm /root/dev/shm
exec switch_root /root /bin/sh /opt/start.sh
"""


@dataclass(frozen=True)
class Guest:
    disk: Path
    arguments: tuple[str, ...]
    """For QEMU, on top of what the provider gives it."""


def tiny(cache: Path) -> Guest:
    image = cache / "empty.qcow2"
    if not image.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _run("qemu-img", "create", "-q", "-f", "qcow2", str(image), "64M")
    return Guest(image, _arguments(cache, "tiny", _INIT + _TINY))


def disk(cache: Path) -> Guest:
    tar = rootfs(cache)
    image = tar.with_suffix(".qcow2")
    if not image.exists():
        tree, raw = cache / "tree", cache / "disk.raw"
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir()
        _run("tar", "-xpf", str(tar), "-C", str(tree))
        _run("mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(raw), f"{DISK_MIB}M")
        _run("qemu-img", "convert", "-O", "qcow2", str(raw), f"{image}.part")
        raw.unlink()
        shutil.rmtree(tree)
        os.replace(f"{image}.part", image)
    return Guest(image, _arguments(cache, "whole", _INIT + _WHOLE))


def _arguments(cache: Path, name: str, init: str) -> tuple[str, ...]:
    system = kernel(cache)
    initrd = cache / f"{name}.cpio.gz"
    initrd.write_bytes(_ram_disk(system, init, cache / f"{name}.tree"))
    return (
        *("-kernel", str(next(system.glob("boot/vmlinuz-*")))),
        *("-initrd", str(initrd)),
        *("-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"),
        *("-vga", "none"),
    )


def kernel(cache: Path) -> Path:
    """Debian's kernel for virtual machines and a static busybox, unpacked."""
    system = cache / "kernel"
    if not (system / "whole").exists():
        shutil.rmtree(system, ignore_errors=True)
        system.mkdir(parents=True)
        depends = _run("apt-cache", "depends", "linux-image-cloud-amd64")
        name = next(w for w in depends.split() if w.startswith("linux-image-") and "6" in w[12:14])
        _run("apt-get", "download", name, "busybox-static", cwd=system)
        for package in system.glob("*.deb"):
            _run("dpkg-deb", "-x", str(package), str(system))
            package.unlink()
        (system / "whole").touch()
    return system


def _ram_disk(system: Path, init: str, tree: Path) -> bytes:
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "root", "lib"):
        (tree / name).mkdir(parents=True)
    busybox = next(p for p in (system / "bin/busybox", system / "usr/bin/busybox") if p.exists())
    shutil.copy(busybox, tree / "bin/busybox")
    modules = next((system / "lib/modules").iterdir())
    order: list[str] = []
    depends = {}
    for line in _run("depmod", "-b", str(system), "-n", modules.name).splitlines():
        if line.startswith(("alias", "#")):
            break
        name, _, needs = line.partition(":")
        depends[name] = needs.split()
    for wanted in MODULES:
        path = next((p for p in depends if Path(p).name.split(".")[0] == wanted), None)
        if path is not None:  # else it is built in
            order += [p for p in (*reversed(depends[path]), path) if p not in order]
    for number, path in enumerate(order):
        data = (modules / path).read_bytes()
        data = lzma.decompress(data) if path.endswith(".xz") else data
        (tree / "lib" / f"{number:02}.ko").write_bytes(data)
    (tree / "modules").write_text(" ".join(f"/lib/{n:02}.ko" for n in range(len(order))))
    (tree / "init").write_text(init)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(p.relative_to(tree)) for p in sorted(tree.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"],
        cwd=tree,
        input=names.encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    shutil.rmtree(tree)
    return gzip.compress(packed.stdout, 1)


def _run(*argv: str, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv[:2])}: {done.stderr.strip()[-500:]}")
    return done.stdout

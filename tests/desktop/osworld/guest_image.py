"""A guest for OSWorld's API, made of this machine's own Debian packages: no registry is asked.

:func:`rootfs` writes it as a tar, which docker imports and from which a disk can be made. Only
pyautogui, which Debian lacks, comes from PyPI.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent / "guest"
PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "debianutils", "findutils", "grep", "hostname"),
    *("libc-bin", "mount", "procps", "sed", "util-linux", "iproute2"),
    *("xvfb", "xauth", "x11-utils", "x11-xserver-utils", "openbox", "dbus-x11", "wmctrl"),
    *("fonts-dejavu-core", "adwaita-icon-theme", "librsvg2-common", "mousepad"),
    *("python3", "python3-tk", "python3-xlib", "python3-pil"),
)
PYAUTOGUI = ("pyautogui==0.9.54", "pymsgbox", "pytweening", "pyscreeze", "mouseinfo", "pyperclip")
MADE_ON_INSTALL = (
    *("/usr/share/mime", "/usr/share/glib-2.0/schemas", "/usr/lib/x86_64-linux-gnu/gdk-pixbuf-2.0"),
    *("/etc/alternatives", "/etc/fonts", "/etc/ssl/openssl.cnf", "/etc/ld.so.cache", "/etc/xdg"),
    *("/usr/share/fontconfig", "/etc/X11", "/etc/python3.11", "/etc/dbus-1", "/var/lib/dbus"),
)
"""What packages make when they are installed, and so is in no package's list of files."""
LEFT_OUT = (
    *("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/"),
    *("/usr/include/", "/usr/lib/gcc/", "/usr/lib/x86_64-linux-gnu/dri/", "/usr/share/bug/"),
    *("/usr/lib/x86_64-linux-gnu/libLLVM", "/usr/share/icons/Adwaita/cursors/"),
)
PASSWD = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n"
GROUP = "root:x:0:\ntty:x:5:\nuser:x:1000:\n"
DIRECTORIES = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/root", "/home", "/opt")


def rootfs(cache: Path) -> Path:
    """The tar, made anew when this module or what goes into it has changed."""
    made_of = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted(HERE.iterdir()):
        made_of.update(file.read_bytes())
    target = cache / f"guest-{made_of.hexdigest()[:12]}.tar"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        site = _site(cache)
        for older in cache.glob("guest-*.*"):
            older.unlink()
        part = target.with_suffix(f".{os.getpid()}.part")
        with tarfile.open(part, "w") as tar:
            _fill(tar, site)
        part.replace(target)
    return target


def _site(cache: Path) -> Path:
    site = cache / "guest-site"
    if not (site / ".whole").exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        command = [*pip, "--no-deps", "--upgrade", "--target", str(site), *PYAUTOGUI]
        subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL)
        compiling = ["/usr/bin/python3", "-m", "compileall", "-q", str(site)]
        subprocess.run(compiling, check=True, timeout=300)
        (site / ".whole").touch()
    return site


def _fill(tar: tarfile.TarFile, site: Path) -> None:
    for name in DIRECTORIES:
        _directory(tar, name, 0o1777 if name.endswith("tmp") else 0o755)
    for name, target in (("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib")):
        _link(tar, name, target)
    _link(tar, "lib64", "usr/lib64")
    _link(tar, "usr/bin/python", "python3")
    made = set(tar.getnames()) | {f"etc/{name}" for name in ("passwd", "group", "hostname")}
    for path in _files():
        if path.lstrip("/") not in made:  # docker takes no name twice
            tar.add(path, path.lstrip("/"), recursive=False)
    for name in ("server.py", "start.sh"):
        tar.add(HERE / name, f"opt/{name}")
    tar.add(HERE / "gdbus", "usr/local/bin/gdbus")
    tar.add(site, "opt/site")
    for name, text in (("passwd", PASSWD), ("group", GROUP), ("hostname", "guest\n")):
        _file(tar, f"etc/{name}", text)
    for name in ("home/user", "home/user/Desktop", "home/user/Documents"):
        _directory(tar, name, 0o755, owner=1000)
    _file(tar, "home/user/Documents/notes.txt", "hello notes\n", owner=1000)


def _files() -> Iterator[str]:
    seen: set[str] = set()
    for path in (*_listed(), *_made()):
        # Merged /usr: a package may name /lib/x, which is the same file as /usr/lib/x.
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if (
            real in seen
            or real.startswith(LEFT_OUT)
            or not real.startswith(("/usr/", "/etc/", "/var/"))
        ):
            continue
        seen.add(real)
        if os.path.lexists(real) and not _special(real):
            yield real
            yield from _compiled(real)


def _compiled(path: str) -> Iterator[str]:
    """The byte code beside a module, without which every start of Python takes seconds."""
    folder, name = os.path.split(path)
    code = f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-311.pyc"
    if name.endswith(".py") and os.path.exists(code):
        yield code


def _special(path: str) -> bool:
    return not (os.path.islink(path) or os.path.isfile(path) or os.path.isdir(path))


def _listed() -> list[str]:
    apt = [
        *("apt-cache", "depends", "--recurse", "--installed", "--no-recommends", "--no-suggests"),
        *("--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", *PACKAGES),
    ]
    names = {line for line in _lines(apt) if line[:1].isalnum()}
    missing = set(PACKAGES) - set(_lines(["dpkg-query", "-W", "-f", "${Package}\n", *PACKAGES]))
    if missing:
        raise RuntimeError(f"install {', '.join(sorted(missing))} first (make setup)")
    return sorted({line for line in _lines(["dpkg", "-L", *sorted(names)]) if line.startswith("/")})


def _made() -> Iterator[str]:
    for root in MADE_ON_INSTALL:
        yield root
        for folder, folders, files in os.walk(root):
            yield from (os.path.join(folder, name) for name in (*folders, *files))


def _lines(argv: list[str]) -> list[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout.splitlines()


def _directory(tar: tarfile.TarFile, name: str, mode: int, owner: int = 0) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
    tar.addfile(entry)


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _file(tar: tarfile.TarFile, name: str, text: str, owner: int = 0) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.uid, entry.gid = len(data), owner, owner
    tar.addfile(entry, io.BytesIO(data))

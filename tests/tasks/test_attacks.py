"""Attacks, each performed on a real desktop: what it tries, that it was tried, and that it fails.

The table in the documentation lists them by the names of these tests.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.desktop.actions import AnyAction, Click, Done, DoubleClick, Drag, Key, RightClick, Type
from legato.desktop.contract import DesktopOptions, Machine, Score
from legato.desktop.local import LocalDesktop, make_desktop
from legato.errors import EnvFailure
from legato.tasks import load_task
from legato.tasks.desktop_apps.edit_text import EditText
from legato.tasks.desktop_basics.file_manager import FileManager
from legato.tasks.desktop_basics.settings_tabs import SettingsTabs
from legato.tasks.qa.attacks import ATTACKS, Spoils, post, read_secret
from legato.tasks.qa.stage import Stage
from legato.tasks.web.app_server import read_log
from legato.tasks.web.server import DO
from legato.tasks.web.task import PORT

pytestmark = pytest.mark.desktop
APPS = ("mousepad", "pcmanfm", "chromium")


@pytest.fixture(scope="module")
def desktop() -> Iterator[LocalDesktop]:
    desktop = make_desktop(DesktopOptions(), slot=0)
    yield desktop
    desktop.close()


@pytest.fixture
def tabs(desktop: LocalDesktop) -> Stage:
    return Stage(desktop, load_task("settings_tabs", 1))


@pytest.fixture
def editor(desktop: LocalDesktop) -> Stage:
    return Stage(desktop, load_task("edit_text", 1))


@pytest.fixture
def files(desktop: LocalDesktop) -> Stage:
    return Stage(desktop, load_task("file_manager", 1))


def events(machine: Machine, kind: str) -> list[dict[str, object]]:
    return [e for e in read_log(machine.scratch / "app")[0] if e["event"] == kind]


def soon(condition: Callable[[], bool], timeout: float = 30.0) -> bool:
    """Whether it comes true: programs on a busy machine take their time."""
    deadline = time.monotonic() + timeout
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds


def solved(stage: Stage, machine: Machine) -> None:
    stage.play(a for a in stage.task.reference_actions(machine) if a != Done())


def winning(stage: Stage) -> tuple[list[object], str]:
    """What solved the task in a session of its own, and that session's secret."""
    machine = stage.start()
    score = stage.verdict(stage.task.reference_actions(machine))
    assert score.reward == 1.0, score
    return [e["request"] for e in events(machine, "do")], read_secret(machine)


def failed_guards(score: Score) -> str:
    return "; ".join(c.name for c in score.checks if c.kind == "guard" and not c.passed)


def commands(machine: Machine) -> set[str]:
    """Names of the programs that run, apart from the desktop's own."""
    own = {"python3", "Xvfb", "openbox", "tint2", "dbus-daemon", "bwrap", "ps", ""}
    return set(machine.run(["ps", "-eo", "comm="]).stdout.split()) - own


# --- the app's server ----------------------------------------------------------------------------


def test_01_a_request_without_the_secret(tabs: Stage) -> None:
    requests, _ = winning(tabs)
    machine = tabs.start()
    assert set(post(machine, "", requests)) == {"403"}
    score = tabs.verdict([Done()])
    assert score.reward == 0.0
    assert "came from the page" in failed_guards(score)


def test_02_a_request_with_a_guessed_secret(tabs: Stage) -> None:
    requests, _ = winning(tabs)
    machine = tabs.start()
    assert set(post(machine, "0" * 32, requests)) == {"403"}
    assert tabs.verdict([Done()]).reward == 0.0


def test_03_an_old_session_replayed(tabs: Stage) -> None:
    requests, secret = winning(tabs)
    machine = tabs.start()
    assert read_secret(machine) != secret
    assert set(post(machine, secret, requests)) == {"403"}
    assert not events(machine, "do")
    assert tabs.verdict([Done()]).reward == 0.0


def test_04_a_refused_request_voids_what_was_solved(tabs: Stage) -> None:
    machine = tabs.start()
    solved(tabs, machine)
    post(machine, "", [{}])
    score = tabs.verdict([Done()])
    assert score.reward == 0.0
    assert "came from the page" in failed_guards(score)


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Origin", "null", 403),
        ("Origin", "http://evil.example", 403),
        ("Content-Type", "text/plain", 415),
        ("Content-Type", "application/x-www-form-urlencoded", 415),
        ("Host", "localhost", 421),
    ],
    ids=["05-null-origin", "06-foreign-origin", "07-text", "08-form", "09-rebound-host"],
)
def test_headers_that_a_form_or_another_site_would_send(
    header: str, value: str, status: int, tabs: Stage
) -> None:
    machine = tabs.start()
    secret = read_secret(machine)
    code = (
        "import json, sys, urllib.error, urllib.request as u\n"
        "h = {'Content-Type': 'application/json', 'Origin': f'http://127.0.0.1:{sys.argv[1]}',"
        " 'X-Session': sys.argv[2]} | {sys.argv[3]: sys.argv[4]}\n"
        "r = u.Request(f'http://127.0.0.1:{sys.argv[1]}{sys.argv[5]}', b'{}', h)\n"
        "try: print(u.urlopen(r, timeout=10).status)\n"
        "except urllib.error.HTTPError as e: print(e.code)\n"
    )
    done = machine.run(["python3", "-c", code, str(PORT), secret, header, value, DO])
    assert done.stdout == f"{status}\n", done
    assert tabs.verdict([Done()]).reward == 0.0


def test_10_a_form_typed_as_a_data_address(tabs: Stage) -> None:
    requests, _ = winning(tabs)
    machine = tabs.start()
    form = (
        f"data:text/html,<body onload=document.forms[0].submit()><form method=post "
        f"enctype=text/plain action=http://127.0.0.1:{PORT}{DO}>"
        f"<input name='{json.dumps(requests[-1])}'></form>"
    )
    score = tabs.verdict([Key(key="ctrl+n"), Key(key="ctrl+l"), Type(text=f"{form}\n"), Done()])
    assert score.reward == 0.0
    assert not events(machine, "do")
    # Blocked before it could be sent: the server never heard of it.
    assert not events(machine, "refused")


@pytest.mark.parametrize(
    ("address", "loaded"),
    [
        ("javascript:document.title='owned'", "owned"),
        ("file:///etc/passwd", "passwd"),
        (f"view-source:http://127.0.0.1:{PORT}/", f"view-source:127.0.0.1:{PORT}"),
        ("chrome://settings", "Settings"),
        ("chrome://extensions", "Extensions"),
        ("devtools://devtools/bundled/inspector.html", "DevTools"),
        ("blob:null/0", "owned"),
        ("https://example.org/", "Example Domain"),
    ],
    ids=[
        *("11-script", "12-file", "13-source", "14-settings", "15-extensions", "16-devtools"),
        *("17a-blob", "17b-web"),
    ],
)
def test_an_address_that_the_policy_blocks(address: str, loaded: str, tabs: Stage) -> None:
    """A page that is blocked has its address for a title, and one that loads has its own."""
    machine = tabs.start()
    tabs.play([Key(key="ctrl+n"), Key(key="ctrl+l"), Type(text=f"{address}\n")])
    titles = [window.title.removesuffix(" - Chromium") for window in machine.windows()]
    assert len(titles) == 2, titles
    assert loaded not in titles
    assert not events(machine, "do")
    assert tabs.verdict([Done()]).reward == 0.0


def test_18_the_state_and_the_log_are_out_of_sight(tabs: Stage) -> None:
    machine = tabs.start()
    log = machine.scratch / "app" / "events.jsonl"
    assert log.is_file()
    found = machine.run(["/bin/sh", "-c", f"ls {log.parent} 2>/dev/null; cat {log} 2>/dev/null"])
    assert found.stdout == ""
    assert "server.py" not in machine.run(["ps", "-ef"]).stdout


def test_19_a_state_that_its_log_does_not_explain(tabs: Stage) -> None:
    """Were the file ever written from outside: by the operator here, who can."""
    machine = tabs.start()
    solved(tabs, machine)
    state = machine.scratch / "app" / "state.json"
    forged = json.loads(state.read_text())
    forged["next"] = 99
    state.write_text(json.dumps(forged))
    score = tabs.verdict([Done()])
    assert score.reward == 0.0
    assert "what the log says" in failed_guards(score)


def test_20_a_second_window_of_the_app(tabs: Stage) -> None:
    machine = tabs.start()
    solved(tabs, machine)
    before = len(machine.windows())
    tabs.play([Key(key="ctrl+n")])
    assert soon(lambda: len(machine.windows()) > before)
    score = tabs.verdict([Done()])
    assert score.reward == 0.0
    assert "second window" in failed_guards(score)


def test_21_an_edit_that_was_not_saved(tabs: Stage) -> None:
    machine = tabs.start()
    task = tabs.task
    solved(tabs, machine)
    assert isinstance(task, SettingsTabs)
    control = next(c for c, _ in task.changes if c.kind == "text")
    window = task.window(machine)
    tabs.play(
        [
            task.click(window, task.screen.tab_boxes[control.tab]),
            task.click(window, control.box),
            Type(text="more"),
        ]
    )
    score = tabs.verdict([Done()])
    assert score.reward == 0.0
    assert "left unsaved" in failed_guards(score)


# --- the desktop ---------------------------------------------------------------------------------


def test_22_developer_tools(tabs: Stage) -> None:
    machine = tabs.start()
    for key in ("F12", "ctrl+shift+i", "ctrl+shift+j", "ctrl+shift+c"):
        tabs.play([Key(key=key)])
    titles = " ".join(w.title for w in machine.windows())
    assert "DevTools" not in titles
    tabs.play([Type(text="send({op: 'save'}, '')\n")])
    assert not events(machine, "do")
    assert tabs.verdict([Done()]).reward == 0.0


@pytest.mark.parametrize(
    "keys",
    [["ctrl+alt+t"], ["alt+F2"], ["super+r"], ["F4"], ["ctrl+alt+F1"]],
    ids=["23-terminal", "24-run", "25-super", "26-pcmanfm-terminal", "27-console"],
)
def test_keys_that_open_a_command_line(keys: list[str], files: Stage) -> None:
    machine = files.start()
    before = commands(machine)
    files.play([*(Key(key=key) for key in keys), Type(text="xterm\n")])
    assert commands(machine) <= before | set(APPS)
    assert files.verdict([Done()]).reward == 0.0


@pytest.mark.parametrize(
    "command",
    ["xterm", "sh -c xterm", "mousepad", "/usr/lib/chromium/chromium --remote-debugging-port=9222"],
    ids=["28a-terminal", "28b-shell", "28c-allowed", "28d-debugging-port"],
)
def test_a_custom_command_to_open_a_file_with(command: str, files: Stage) -> None:
    """By the file manager's dialog, where the command is typed; it starts nothing at all."""
    machine = files.start()
    before = commands(machine) | {"menu-cached"}
    window = machine.windows()[0]
    menu = ("Escape", "shift+F10", "Down", "Return")
    assert isinstance(files.task, FileManager)
    name = next(name for name in files.task.files if "/" not in name)
    files.play([Type(text=name), *(Key(key=key) for key in menu)])
    dialog = next(w for w in machine.windows() if w.id != window.id)
    assert dialog.title == "Choose Application"
    # Its second tab, and in there the field has the keyboard.
    files.play([Click(x=dialog.x + 240, y=dialog.y + 42), Type(text=command)])
    files.play([Click(x=dialog.x + dialog.width - 54, y=dialog.y + dialog.height - 28)])
    assert not any(w.id == dialog.id for w in machine.windows()), "the dialog took the command"
    assert commands(machine) <= before
    files.desktop.wait_after_reset()
    assert commands(machine) <= before


def test_29_an_executable_script_in_the_home(files: Stage) -> None:
    """What a file manager would run has no interpreter to run by."""
    machine = files.start()
    place = f"{machine.home}/{files.task.folder}/run.sh"  # type: ignore[attr-defined]
    machine.write_file(place, b"#!/bin/sh\ntouch /tmp/ran\n", mode=0o755)
    view = machine._guest.run  # type: ignore[attr-defined]
    assert view(["/bin/sh", "-c", f"{place}; test -e /tmp/ran"], timeout=20).returncode == 0
    machine.run(["rm", "-f", "/tmp/ran"])
    files.play([Type(text="run.sh"), Key(key="Escape"), Key(key="Return"), Key(key="Return")])
    time.sleep(0.5)
    assert machine.run(["test", "-e", "/tmp/ran"]).returncode != 0


def test_30_the_app_killed(tabs: Stage) -> None:
    """Ended, it leaves nothing to reward; killed as no agent can, there is no verdict at all."""
    machine = tabs.start()
    assert machine.run(["pkill", "-TERM", "-x", "chromium"]).returncode == 0
    assert soon(lambda: not machine.windows())
    assert tabs.verdict([Done()]).reward == 0.0
    machine = tabs.start()
    assert machine.run(["pkill", "-KILL", "-x", "chromium"]).returncode == 0
    with pytest.raises(EnvFailure, match="not by the agent's doing"):
        tabs.verdict([Done()])


def test_31_the_disk_filled(editor: Stage) -> None:
    """A verdict all the same, and a desktop that works again after its reset."""
    machine = editor.start()
    fill = "head -c 2G /dev/zero > ~/fill; head -c 2G /dev/zero > /tmp/fill; true"
    machine.run(["/bin/sh", "-c", fill], timeout=120.0)
    assert machine.run(["/bin/sh", "-c", "echo x > ~/more"]).returncode != 0
    assert editor.verdict([Key(key="ctrl+s"), Done()]).reward == 0.0
    machine = editor.start()
    assert editor.verdict(editor.task.reference_actions(machine)).reward == 1.0


def test_32_a_bomb_for_the_verifier(editor: Stage) -> None:
    machine = editor.start()
    task = editor.task
    machine.run(
        ["/bin/sh", "-c", f"for i in $(seq 1 4000); do : > ~/Documents/{'x' * 100}$i; done"],
        timeout=60.0,
    )
    assert editor.verdict(task.reference_actions(machine)).reward == 0.0


def test_33_a_link_to_the_hosts_files(files: Stage) -> None:
    machine = files.start()
    folder = f"{machine.home}/{files.task.folder}"  # type: ignore[attr-defined]
    machine.run(["/bin/sh", "-c", f"ln -s /proc/self/root/etc/shadow {folder}/notes; true"])
    score = files.verdict([Done()])
    assert score.reward == 0.0
    assert "root:" not in json.dumps([c.detail for c in score.checks])


def test_34_processes_that_write_while_grading(editor: Stage) -> None:
    """Frozen before anyone looks: what a stray writer does comes too late."""
    machine = editor.start()
    loop = "while :; do cat /dev/urandom | head -c 64 > ~/Documents/race.txt; done"
    machine.launch(["mousepad"])
    machine.run(["/bin/sh", "-c", f"({loop}) > /dev/null 2>&1 &"])
    first = editor.verdict([Done()])
    assert editor.desktop.evaluate() == first == editor.desktop.evaluate()


def test_35_another_users_rights(editor: Stage) -> None:
    machine = editor.start()
    for command in ("sudo -n id", "su -c id", "pkexec id", "unshare -r chown 0 /tmp"):
        done = machine.run(["/bin/sh", "-c", command])
        assert "uid=0(root)" not in done.stdout, command
    if os.getuid() == 0:
        owner = Path(f"/proc/{editor.desktop._box.first_pid}/status")  # type: ignore[attr-defined]
        assert "Uid:\t0" not in owner.read_text()


def test_36_a_click_on_every_part_of_the_panel_and_the_menu(files: Stage) -> None:
    machine = files.start()
    clicks: list[AnyAction] = [Click(x=x, y=701) for x in (22, 53, 85)]
    files.play([*clicks, RightClick(x=1200, y=600), Key(key="Down"), Key(key="Return")])
    assert commands(machine) <= set(APPS) | {"chrome_crashpad", "chrome_crashpad_handler"}
    assert machine._guest.outsiders() == []  # type: ignore[attr-defined]


# --- what a judge could miss ---------------------------------------------------------------------


def test_37_a_script_as_a_bookmark(tabs: Stage) -> None:
    """Saved by the browser's own dialog, and clicked on: the policy keeps it from running."""
    machine = tabs.start()
    tabs.play([Key(key="ctrl+n"), Key(key="ctrl+shift+b")])
    window = machine.windows()[-1]
    bar = window.y + 88
    tabs.play([RightClick(x=window.x + 500, y=bar), Key(key="a"), Key(key="Down")])
    tabs.play([Key(key="Return"), Type(text="x\tjavascript:document.title='owned'\n")])
    tabs.play([Click(x=window.x + 90, y=bar)])
    assert b"javascript:document.title" in bookmarks(machine)
    assert not any("owned" in w.title for w in machine.windows())
    assert not events(machine, "do")
    assert tabs.verdict([Done()]).reward == 0.0


def bookmarks(machine: Machine) -> bytes:
    """The browser's file of them, which it writes some seconds after a change."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        data = machine.read_file(f"{machine.home}/.config/chromium/Default/Bookmarks")
        if data is not None:
            return data
        time.sleep(0.2)
    raise AssertionError("no bookmark was written")


def test_38_the_app_edited_behind_a_blocked_page(tabs: Stage) -> None:
    machine = tabs.start()
    solved(tabs, machine)
    tabs.play([Key(key="ctrl+n"), Key(key="ctrl+t"), Key(key="ctrl+l")])
    tabs.play([Type(text="chrome://settings\n")])
    titles = [window.title for window in machine.windows()]
    assert len(titles) == 2
    assert "settings" in titles[1]
    score = tabs.verdict([Done()])
    assert score.reward == 0.0
    assert "other browser window" in failed_guards(score)


@pytest.fixture
def sheet(desktop: LocalDesktop) -> Stage:
    return Stage(desktop, load_task("calc_sheet", 5))


@pytest.mark.parametrize("key", ["alt+F11", "alt+F12"], ids=["39a-macros", "39b-options"])
def test_what_opens_a_way_to_scripts_in_a_spreadsheet(key: str, sheet: Stage) -> None:
    machine = sheet.start()
    before = machine.windows()
    sheet.play([Key(key=key)])
    assert machine.windows() == before
    assert sheet.verdict([Done()]).reward == 0.0


def test_40_a_spreadsheet_that_is_not_saved(sheet: Stage) -> None:
    """Three scorings find the same: the question that closing its window raises is left open."""
    machine = sheet.start()
    solved(sheet, machine)
    first = sheet.verdict([Type(text="more\n"), Done()])
    assert first.reward == 0.0
    assert failed_guards(first) == "nothing is unsaved or still edited"
    assert sheet.desktop.evaluate() == first == sheet.desktop.evaluate()


@pytest.mark.parametrize(
    "place",
    ["/home/user/Desktop/copy.txt", "/home/user/.copy.txt", "/tmp/copy.txt"],
    ids=["41a-desktop", "41b-hidden", "41c-temporary"],
)
def test_a_copy_saved_elsewhere(place: str, editor: Stage) -> None:
    machine = editor.start()
    solved(editor, machine)
    editor.play([Key(key="ctrl+shift+s"), Key(key="ctrl+a"), Type(text=f"{place}\n")])
    assert soon(lambda: machine.read_file(place) is not None)
    score = editor.verdict([Done()])
    assert score.reward == 0.0
    assert "put elsewhere" in failed_guards(score)


@pytest.mark.parametrize("name", ["edit_text", "file_manager"], ids=["42a-text", "42b-folder"])
def test_names_links_and_files_that_trap_a_verifier(name: str, desktop: LocalDesktop) -> None:
    stage = Stage(desktop, load_task(name, 1))
    machine = stage.start()
    solved(stage, machine)
    traps = next(attack for attack in ATTACKS if attack.name == "traps in every folder")
    score = stage.verdict(traps.perform(machine, stage.task, Spoils()))
    assert score.reward == 0.0
    assert failed_guards(score)


def test_43_a_terminal_of_the_agents_choice(files: Stage) -> None:
    """Neither typed into the file manager's preferences nor written into its settings."""
    machine = files.start()
    before = machine.windows()
    files.play([Key(key="alt+e"), Key(key="Up"), Key(key="Return")])
    assert machine.windows() == before
    settings = f"{machine.home}/.config/libfm/libfm.conf"
    files.play([Key(key="alt+F4"), RightClick(x=1200, y=600), *[Key(key="Down")] * 2])
    files.play([Key(key="Return"), Type(text="[config]\nterminal=mousepad %s\n")])

    def titles() -> set[str]:
        return {window.title for window in machine.windows()}

    files.play([Key(key="ctrl+shift+s")])
    assert soon(lambda: "Save As" in titles())
    files.play([Key(key="ctrl+a"), Type(text=f"{settings}\n")])
    # Refused at once, or the question of the file's name stays: it is a race of the two.
    assert "*Untitled 1 - Mousepad" in titles()
    assert titles() & {"Save As", "Save Changes"}
    assert machine.read_file(settings) is None
    assert files.verdict([Done()]).reward == 0.0


def test_44_a_text_in_a_tab_behind_the_file(editor: Stage) -> None:
    """No title tells of it; three scorings find the same, and save nothing."""
    machine = editor.start()
    solved(editor, machine)
    editor.play([Key(key="ctrl+n"), Type(text="junk"), Key(key="ctrl+Page_Up")])
    (window,) = machine.windows()
    assert isinstance(editor.task, EditText)
    assert window.title.endswith(f"/{editor.task.file} - Mousepad")
    assert not window.title.startswith("*")
    first = editor.verdict([Done()])
    assert first.reward == 0.0
    assert "unsaved" in failed_guards(first)
    assert editor.desktop.evaluate() == first == editor.desktop.evaluate()


HIDE = {
    "under a hidden name": [Key(key="F2"), Key(key="ctrl+a"), Type(text=".draft\n")],
    "among the settings": [Key(key="ctrl+x"), Key(key="ctrl+l"), Type(text="~/.config\n")],
    "among what is temporary": [Key(key="ctrl+x"), Key(key="ctrl+l"), Type(text="/tmp\n")],
}


@pytest.mark.parametrize("how", HIDE, ids=["45a-name", "45b-settings", "45c-temporary"])
def test_a_file_hidden_instead_of_deleted(how: str, desktop: LocalDesktop) -> None:
    task = next(
        task
        for task in (load_task("file_manager", seed) for seed in range(100))
        if isinstance(task, FileManager) and [r.kind for r in task.rules[-1:]] == ["delete"]
    )
    stage = Stage(desktop, task)
    machine = stage.start()
    name = task.rules[-1].moves[0][0]
    stage.play(a for a in task.follow(task.rules[:-1]) if a != Done())
    stage.play([Key(key="ctrl+l"), Type(text=f"~/{task.folder}\n")])
    stage.play([Type(text=name), Key(key="Escape"), *HIDE[how]])
    if how != "under a hidden name":
        stage.play([Key(key="ctrl+v")])
    assert soon(lambda: machine.read_file(f"{machine.home}/{task.folder}/{name}") is None)
    score = stage.verdict([Done()])
    assert [c.passed for c in score.checks if c.name == "delete"] == [False], score
    assert score.reward == 0.0


def test_46_a_spreadsheet_that_no_longer_answers(sheet: Stage) -> None:
    """Busy without end, as a formula can have it, which is the agent's doing."""
    machine = sheet.start()
    solved(sheet, machine)
    assert machine.run(["pkill", "-STOP", "soffice.bin"]).returncode == 0
    score = sheet.verdict([Done()])
    assert score.reward == 0.0
    assert failed_guards(score) == "nothing is unsaved or still edited"


# --- what a file of the agent's own could start --------------------------------------------------

LAUNCHER = b"[Desktop Entry]\nType=Application\nName=x\nExec=touch /tmp/started\n"


@pytest.mark.parametrize(
    ("name", "content", "how"),
    [
        ("x.desktop", LAUNCHER, "mouse"),
        ("x.desktop", LAUNCHER, "keys"),
        ("nameless", LAUNCHER, "keys"),
        ("x.desktop", LAUNCHER, "drop"),
        ("script", b"#!/usr/bin/touch /tmp/started\n", "mouse"),
    ],
    ids=["50a-mouse", "50b-keys", "50c-by-content", "50d-drop", "50e-script"],
)
def test_a_launcher_of_the_agents_own(name: str, content: bytes, how: str, editor: Stage) -> None:
    """It names an allowed program, with arguments of the agent's choice."""
    machine = editor.start()
    place = f"{machine.home}/Desktop/own"
    for file, text in ((name, content), ("a", b"text")):
        machine.write_file(f"{place}/{file}", text, mode=0o755)
    machine.launch(["pcmanfm", place])
    window = next(w for w in machine.windows() if w.wm_class == "Pcmanfm")
    editor.desktop.wait_after_reset()
    first, second = (window.x + 207, window.y + 110), (window.x + 307, window.y + 110)
    if how == "keys":
        editor.play([Type(text=name), Key(key="Escape"), Key(key="Return")])
    elif how == "mouse":
        editor.play([DoubleClick(x=second[0], y=second[1])])
    else:
        editor.play([Drag(x=first[0], y=first[1], to_x=second[0], to_y=second[1])])
    titles = {w.title for w in machine.windows()}
    if how != "drop":
        assert titles & {"Execute File", "Choose Application"}, "nothing was opened"
    if "Execute File" in titles:
        editor.play([Key(key="alt+e")])
    assert not soon(lambda: machine.read_file("/tmp/started") is not None, 1.0)
    assert machine.windows(), "the file manager is gone"


def test_50f_a_service_of_the_message_bus(editor: Stage) -> None:
    """Any program may ask for a service by name; which command that starts is not the agent's."""
    machine = editor.start()
    service = b"[D-BUS Service]\nName=org.gtk.vfs.Daemon\nExec=/usr/bin/touch /tmp/started\n"
    ask = ["dbus-send", "--session", "--print-reply", "--reply-timeout=3000"]
    for place in ("/run/user/1000", f"{machine.home}/.local/share"):
        machine.write_file(f"{place}/dbus-1/services/own.service", service)
    bus = ["--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus.ReloadConfig"]
    assert machine.run([*ask, *bus]).returncode == 0
    done = machine.run([*ask, "--dest=org.gtk.vfs.Daemon", "/", "org.gtk.vfs.Daemon.X"])
    assert "was not provided" in done.stderr
    assert machine.read_file("/tmp/started") is None

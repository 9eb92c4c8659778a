"""Solved end states, each changed in one way that an agent could cause: every change is caught.

Caught means less than full credit; ``0`` in a table's name column says that nothing may be left.
"""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PIL import Image

from legato.desktop.contract import Score
from legato.tasks import load_task
from legato.tasks.desktop_apps.calc_sheet import COLUMNS, CalcSheet
from legato.tasks.desktop_apps.edit_text import EditText
from legato.tasks.desktop_apps.spreadsheet import make_ods
from legato.tasks.desktop_apps.unpack_archive import UnpackArchive
from legato.tasks.desktop_apps.view_pictures import ViewPictures
from legato.tasks.desktop_basics.file_manager import FileManager
from legato.tasks.scoring import score_checks
from legato.tasks.seeded import SeededTask
from legato.tasks.verifier import pack_bytes, run_judge
from legato.tasks.web.task import WebTask
from tests.tasks.solved import Request, requests_of, web_evidence

T = TypeVar("T", bound=SeededTask)
Evidence = dict[str, Any]
FEWEST = 10


def find(name: str, fits: Callable[[Any], bool] = lambda task: True) -> Any:
    for seed in range(400):
        task = load_task(name, seed)
        if fits(task):
            return task
    raise AssertionError(f"no {name} fits")


def judged(task: SeededTask, evidence: Evidence) -> Score:
    return score_checks(run_judge(task.judge, evidence))


# --- web apps ------------------------------------------------------------------------------------

Mutation = Callable[[WebTask, list[Request]], list[Request]]


def refused(e: Evidence) -> None:
    e["found"]["events"].append(
        {"n": len(e["found"]["events"]) + 1, "event": "refused", "why": "wrong session"}
    )


def forged_state(e: Evidence) -> None:
    e["found"]["state"]["next"] += 7


def lost_event(e: Evidence) -> None:
    del e["found"]["events"][0]


def unsaved(e: Evidence) -> None:
    e["found"]["titles"] = ["• " + e["app"]["title"]]


def two_windows(e: Evidence) -> None:
    e["found"]["titles"] *= 2


def hidden_tabs(e: Evidence) -> None:
    e["found"]["titles"].append("settings - Chromium")


ANY_APP: dict[str, Callable[[Evidence], None]] = {
    "a request was refused": refused,
    "the state is not what the log says": forged_state,
    "an event is missing from the log": lost_event,
    "something is not saved": unsaved,
    "a second window is open": two_windows,
    "a window with tabs is open": hidden_tabs,
}
WEB = ["settings_tabs", "signup_form", "todo_list", "expense_sheet", "web_shop"]


@pytest.mark.parametrize("how", ANY_APP)
@pytest.mark.parametrize("name", WEB)
def test_what_voids_the_score_of_every_web_app(name: str, how: str) -> None:
    task = find(name)
    evidence = web_evidence(task, requests_of(task))
    assert judged(task, evidence).reward == 1.0
    ANY_APP[how](evidence)
    score = judged(task, evidence)
    assert score.reward == 0.0
    assert "guard failed" in score.output


def with_value(change: Callable[[Any], Any], pick: str) -> Mutation:
    """Change the value of one text field of the last request."""

    def mutate(task: WebTask, requests: list[Request]) -> list[Request]:
        values = requests[-1]["values"]
        key = next(k for k in values if k == pick or (pick == "*" and isinstance(values[k], str)))
        values[key] = change(values[key])
        return requests

    return mutate


def typed(task: Any) -> str:
    """Id of a text field that was asked for."""
    if task.name == "settings_tabs":
        return str(next(c.id for c, _ in task.changes if c.kind == "text"))
    return str(next(f.id for f in task.form.fields if f.kind == "text"))


def on_typed(change: Callable[[str], str]) -> Mutation:
    return lambda task, requests: with_value(change, typed(task))(task, requests)


def untouched_setting(task: Any, requests: list[Request]) -> list[Request]:
    changed = {control.id for control, _ in task.changes}
    other = next(c for c in task.screen.controls if c.id not in changed)
    requests[0]["values"][other.id] = other.others[0]
    return requests


def back_to_start(task: Any, requests: list[Request]) -> list[Request]:
    return [*requests, {"op": "save", "values": dict(task.app.state["settings"])}]


def unasked_field(task: Any, requests: list[Request]) -> list[Request]:
    field = next(f for f in task.form.fields if f.wanted == f.initial and f.kind == "check")
    requests[0]["values"][field.id] = not field.wanted
    return requests


def first_only(task: WebTask, requests: list[Request]) -> list[Request]:
    return requests[:-1]


def junk_todo(task: WebTask, requests: list[Request]) -> list[Request]:
    return [*requests, {"op": "add", "values": {"text": "junk", "done": False}}]


def added_twice(task: Any, requests: list[Request]) -> list[Request]:
    return [*requests, next(r for r in requests if r["op"] == "add")]


def another_deleted(task: Any, requests: list[Request]) -> list[Request]:
    mine = {change.id for change in task.changes}
    other = next(row["id"] for row in task.app.state["todos"] if row["id"] not in mine)
    return [*requests, {"op": "delete", "id": other}]


def another(task: Any, requests: list[Request], op: str, values: dict[str, Any]) -> list[Request]:
    mine = {change.id for change in task.changes}
    other = next(r["id"] for r in task.app.state["todos"] if r["id"] not in mine and not r["done"])
    return [*requests, {"op": op, "id": other, "values": values}]


def edited_row(change: Callable[[Any, list[dict[str, Any]]], None]) -> Mutation:
    def mutate(task: WebTask, requests: list[Request]) -> list[Request]:
        change(task, requests[-1]["rows"])
        return requests

    return mutate


def other_row(task: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    mine = {change.line.id for change in task.changes}
    return next(row for row in rows if row.get("id") and row["id"] not in mine)


def set_other(name: str, value: str) -> Mutation:
    return edited_row(lambda task, rows: other_row(task, rows).update({name: value}))


def amount_of(task: Any, rows: list[dict[str, Any]], change: Callable[[str], str]) -> None:
    wanted = next(c for c in task.changes if c.action == "amount")
    row = next(row for row in rows if row.get("id") == wanted.line.id)
    row["amount"] = change(row["amount"])


def in_order(change: Callable[[dict[str, Any]], None]) -> Mutation:
    def mutate(task: WebTask, requests: list[Request]) -> list[Request]:
        change(requests[-1]["values"])
        return requests

    return mutate


def put(change: dict[str, Any]) -> Mutation:
    def mutate(task: WebTask, requests: list[Request]) -> list[Request]:
        requests[0]["values"] |= change
        return requests

    return mutate


def other_article(task: Any, requests: list[Request]) -> list[Request]:
    asked = {article.name for article, _, _ in task.order.lines}
    other = next(a for a in task.shop.articles if a.name not in asked)
    values = {"article": other.name, "variant": other.variants[0], "quantity": "1"}
    return [{"op": "put", "values": values}, *requests]


def left_in_cart(task: Any, requests: list[Request]) -> list[Request]:
    return [*requests, copy.deepcopy(requests[0])]


def ordered_twice(task: Any, requests: list[Request]) -> list[Request]:
    return [*requests, *copy.deepcopy(requests)]


def other_quantity(task: Any, requests: list[Request]) -> list[Request]:
    now = requests[0]["values"]["quantity"]
    requests[0]["values"]["quantity"] = "5" if now != "5" else "4"
    return requests


def other_variant(task: Any, requests: list[Request]) -> list[Request]:
    article, variant, _ = task.order.lines[0]
    requests[0]["values"]["variant"] = next(v for v in article.variants if v != variant)
    return requests


def one_by_one(task: Any, requests: list[Request]) -> list[Request]:
    """Each article put into the cart as often as it is wanted, one at a time."""
    *puts, order = requests
    ones = [
        {**put, "values": {**put["values"], "quantity": "1"}}
        for put in puts
        for _ in range(int(put["values"]["quantity"]))
    ]
    return [*ones, order]


def test_articles_bought_one_by_one_are_as_good() -> None:
    task = find("web_shop", lambda t: all(n != "1" for _, _, n in t.order.lines))
    requests = one_by_one(task, requests_of(task))
    assert len(requests) > len(requests_of(task))
    assert judged(task, web_evidence(task, requests)).reward == 1.0
    assert judged(task, web_evidence(task, [requests[0], *requests])).reward < 1.0


def both_variants(task: Any, requests: list[Request]) -> list[Request]:
    return [other_variant(task, copy.deepcopy(requests))[0], *requests]


def other_delivery(task: Any, requests: list[Request]) -> list[Request]:
    now = task.order.delivery
    requests[-1]["values"]["delivery"] = next(d for d in task.shop.deliveries if d != now)
    return requests


OF_APP: dict[str, dict[str, Mutation]] = {
    "settings_tabs": {
        "nothing saved": first_only,
        "a letter too many": on_typed(lambda v: v + "x"),
        "letter case": on_typed(str.swapcase),
        "a space before": on_typed(lambda v: " " + v),
        "empty": on_typed(lambda v: ""),
        "another setting changed": untouched_setting,
        "saved back to the start": back_to_start,
    },
    "signup_form": {
        "not sent": first_only,
        "a letter too many": on_typed(lambda v: v + "x"),
        "letter case": on_typed(str.swapcase),
        "a space after": on_typed(lambda v: v + " "),
        "sent twice": lambda task, requests: requests * 2,
        "an unasked box": unasked_field,
        "a letter missing": on_typed(lambda v: v[:-1] or "x"),
    },
    "todo_list": {
        "one change missing": first_only,
        "a junk entry": junk_todo,
        "added twice": added_twice,
        "another entry deleted": another_deleted,
        "another entry ticked": lambda t, r: another(t, r, "tick", {"done": True}),
        "another entry renamed": lambda t, r: another(t, r, "rename", {"text": "other"}),
        "nothing at all": lambda t, r: [],
    },
    "expense_sheet": {
        "not saved": first_only,
        "another amount": set_other("amount", "1.00"),
        "another kind": edited_row(
            lambda t, rows: other_row(t, rows).update(
                kind=next(
                    k
                    for k in ("Food", "Office", "Other", "Travel")
                    if k != other_row(t, rows)["kind"]
                )
            )
        ),
        "another item": set_other("item", "forged"),
        "another day": set_other("day", "01.01"),
        "a junk line": edited_row(
            lambda t, rows: rows.append({"day": "1", "item": "junk", "kind": "Food", "amount": "1"})
        ),
        "lines out of order": edited_row(lambda t, rows: rows.reverse()),
        "another line deleted": edited_row(lambda t, rows: rows.remove(other_row(t, rows))),
        "a cent too much": edited_row(lambda t, rows: amount_of(t, rows, lambda a: a + "1")),
    },
    "web_shop": {
        "not ordered": first_only,
        "another name": in_order(lambda v: v.update(name=v["name"].lower())),
        "another street": in_order(lambda v: v.update(street=v["street"] + "0")),
        "another delivery": other_delivery,
        "another quantity": other_quantity,
        "another variant": other_variant,
        "another article too": other_article,
        "another variant too": both_variants,
        "something left in the cart": left_in_cart,
        "ordered twice": ordered_twice,
    },
}
SUITED: dict[str, Callable[[Any], bool]] = {
    "todo_list": lambda t: (
        any(c.kind == "add" for c in t.changes)
        and sum(not r["done"] for r in t.app.state["todos"]) > len(t.changes) + 1
    ),
    "expense_sheet": lambda t: (
        any(c.action == "amount" for c in t.changes) and len(t.lines) > len(t.changes) + 1
    ),
    "signup_form": lambda t: any(
        f.wanted == f.initial and f.kind == "check" for f in t.form.fields
    ),
}


@pytest.mark.parametrize(("name", "how"), [(n, h) for n, table in OF_APP.items() for h in table])
def test_a_changed_end_state_of_a_web_app_is_caught(name: str, how: str) -> None:
    task = find(name, SUITED.get(name, lambda t: True))
    assert judged(task, web_evidence(task, requests_of(task))).reward == 1.0
    changed = OF_APP[name][how](task, copy.deepcopy(requests_of(task)))
    assert changed != requests_of(task)
    assert judged(task, web_evidence(task, changed)).reward < 1.0


def test_every_verifier_of_a_web_app_has_its_mutations() -> None:
    assert all(len(OF_APP[name]) + len(ANY_APP) >= FEWEST for name in WEB)


# --- files ---------------------------------------------------------------------------------------


def files_of(data: dict[str, bytes | None]) -> dict[str, Any]:
    return {n: None if d is None else {"data": pack_bytes(d)} for n, d in data.items()}


def text_state(task: EditText) -> dict[str, bytes | None]:
    lines = list(task.lines)
    for change in task.changes:
        if change.kind == "set":
            lines[lines.index(change.old or "")] = change.new or ""
        elif change.kind == "remove":
            lines.remove(change.old or "")
        else:
            lines.append(change.new or "")
    return {task.file: ("\n".join(lines) + "\n").encode(), **task.others}


def text_evidence(
    task: EditText, files: dict[str, bytes | None], titles: list[str] | None = None
) -> Evidence:
    return {
        "file": task.file,
        "separator": task.separator,
        "before": task.lines,
        "changes": [change.to_json() for change in task.changes],
        "others": {name: pack_bytes(data) for name, data in task.others.items()},
        "found": {
            "folder": {"files": files_of(files)},
            "titles": titles or [],
            "elsewhere": [],
        },
    }


def on_text(change: Callable[[bytes], bytes]) -> Callable[[EditText, dict[str, Any]], None]:
    def mutate(task: EditText, files: dict[str, Any]) -> None:
        files[task.file] = change(files[task.file])

    return mutate


TEXT: dict[str, Callable[[EditText, dict[str, Any]], None]] = {
    "not saved": on_text(lambda d: b""),
    "deleted": lambda t, f: f.pop(t.file) and None,
    "a line too many": on_text(lambda d: d + b"junk\n"),
    "everything twice": on_text(lambda d: d + d),
    "letter case": on_text(lambda d: d.upper()),
    "spaces at the ends of lines": on_text(lambda d: d.replace(b"\n", b" \n")),
    "the first line gone": on_text(lambda d: d.partition(b"\n")[2]),
    "UTF-16": on_text(lambda d: d.decode().encode("utf-16")),
    "a NUL in it": on_text(lambda d: d[:5] + b"\0" + d[5:]),
    "the file beside it changed": lambda t, f: f.update({next(iter(t.others)): b"x"}),
    "the file beside it gone": lambda t, f: f.pop(next(iter(t.others))) and None,
    "a copy beside it": lambda t, f: f.update({"copy.txt": f[t.file]}),
    "saved elsewhere": lambda t, f: f.update({"new.txt": f.pop(t.file)}),
    "an added line twice": on_text(lambda d: d + d.splitlines(keepends=True)[-1]),
}


@pytest.mark.parametrize("how", TEXT)
def test_a_changed_text_is_caught(how: str) -> None:
    task: EditText = find("edit_text", lambda t: any(c.kind == "add" for c in t.changes))
    files = text_state(task)
    assert judged(task, text_evidence(task, files)).reward == 1.0
    TEXT[how](task, files)
    assert judged(task, text_evidence(task, files)).reward < 1.0


@pytest.mark.parametrize(
    "titles",
    [
        ["*a.txt - Mousepad", "Save Changes"],
        ["a.txt - Mousepad", "Save Changes"],
        ["a.txt - Mousepad", "b.txt - Mousepad"],
    ],
    ids=["unsaved", "unsaved in another tab", "a second window"],
)
def test_an_editor_that_did_not_close_is_caught(titles: list[str]) -> None:
    task: EditText = find("edit_text")
    assert judged(task, text_evidence(task, text_state(task), titles)).reward == 0.0


def tidy_state(task: FileManager) -> dict[str, bytes | None]:
    files: dict[str, bytes | None] = dict(task.files)
    for rule in task.rules:
        for source, target in rule.moves:
            data = files.pop(source)
            if target is not None:
                files[target] = data
    return files


def tidy_evidence(task: FileManager, files: dict[str, Any]) -> Evidence:
    outside = [name for name in files if name.startswith("../")]
    return {
        "before": {name: pack_bytes(data) for name, data in task.files.items()},
        "rules": [rule.to_json() for rule in task.rules],
        "found": {
            "folder": {"files": files_of({n: d for n, d in files.items() if n not in outside})},
            "elsewhere": [name.removeprefix("../") for name in outside],
            "copies": {},
        },
    }


def kept(task: FileManager) -> str:
    moved = {source for rule in task.rules for source, _ in rule.moves}
    return next(name for name in task.files if name not in moved)


def moved(task: FileManager) -> tuple[str, str]:
    pairs = (move for rule in task.rules for move in rule.moves)
    return next((s, t) for s, t in pairs if t is not None)


TIDY: dict[str, Callable[[FileManager, dict[str, Any]], None]] = {
    "another file gone": lambda t, f: f.pop(kept(t)) and None,
    "another file changed": lambda t, f: f.update({kept(t): b"x"}),
    "another file renamed": lambda t, f: f.update({"renamed.txt": f.pop(kept(t))}),
    "another file copied": lambda t, f: f.update({"copy.txt": f[kept(t)]}),
    "a junk file": lambda t, f: f.update({"junk.txt": b"junk"}),
    "a junk folder": lambda t, f: f.update({"New folder/": None}),
    "left where it was": lambda t, f: f.update({moved(t)[0]: f.pop(moved(t)[1])}),
    "copied instead of moved": lambda t, f: f.update({moved(t)[0]: f[moved(t)[1]]}),
    "contents lost": lambda t, f: f.update({moved(t)[1]: b""}),
    "moved out of the folder": lambda t, f: f.update({"../Desktop/x.txt": f.pop(moved(t)[1])}),
    "letter case of the name": lambda t, f: f.update({moved(t)[1].upper(): f.pop(moved(t)[1])}),
    "nothing left": lambda t, f: f.clear(),
}


@pytest.mark.parametrize("how", TIDY)
def test_a_changed_folder_is_caught(how: str) -> None:
    task: FileManager = find("file_manager")
    files = tidy_state(task)
    assert judged(task, tidy_evidence(task, files)).reward == 1.0
    TIDY[how](task, files)
    assert judged(task, tidy_evidence(task, files)).reward < 1.0


# --- spreadsheet ---------------------------------------------------------------------------------

Rows = list[list[Any]]


def sheet_rows(task: CalcSheet) -> Rows:
    rows: Rows = [list(COLUMNS), *(list(line) for line in task.lines)]
    for change in task.changes:
        if change.kind == "count":
            next(row for row in rows if row[0] == change.item)[2] = change.value
        elif change.kind == "add":
            rows.append([change.item, change.shelf, change.value])
    return rows


def sheet_evidence(
    task: CalcSheet, data: bytes | None, extra: dict[str, bytes] | None = None
) -> Evidence:
    files: dict[str, bytes | None] = {} if data is None else {task.file: data}
    return {
        "file": task.file,
        "sheet": task._plan[0],
        "original": pack_bytes(task.original()),
        "columns": COLUMNS,
        "lines": [list(line) for line in task.lines],
        "changes": [change.to_json() for change in task.changes],
        "found": {"folder": {"files": files_of(files)}, "open": [], "elsewhere": []},
    }


def unchanged(task: CalcSheet) -> int:
    """Row of a line that was not to be changed."""
    asked = {change.item for change in task.changes}
    return next(n for n, line in enumerate(task.lines, 1) if line[0] not in asked)


def counted(task: CalcSheet) -> int:
    item = next(change.item for change in task.changes if change.kind == "count")
    return next(n for n, line in enumerate(task.lines, 1) if line[0] == item)


def set_cell(
    row: Callable[[CalcSheet], int], column: int, value: Any
) -> Callable[[CalcSheet, Rows], None]:
    def mutate(task: CalcSheet, rows: Rows) -> None:
        rows[row(task)][column] = value

    return mutate


SHEET: dict[str, Callable[[CalcSheet, Rows], None]] = {
    "another count": set_cell(unchanged, 2, 999),
    "another item": set_cell(unchanged, 0, "Forged"),
    "another shelf": set_cell(unchanged, 1, "Z9"),
    "a count as text": set_cell(counted, 2, "many"),
    "a wrong count": set_cell(counted, 2, 12345),
    "a heading": set_cell(lambda t: 0, 0, "ITEM"),
    "a line missing": lambda t, rows: rows.pop(unchanged(t)) and None,
    "a junk line": lambda t, rows: rows.append(["Junk", "A1", 1]) or rows.append(["J", "A", 2]),
    "a junk column": lambda t, rows: rows[0].append("Junk"),
    "lines out of order": lambda t, rows: rows.insert(1, rows.pop()),
    "everything gone": lambda t, rows: rows.clear() or rows.append(["x"]),
}


@pytest.mark.parametrize("how", SHEET)
def test_a_changed_sheet_is_caught(how: str) -> None:
    task: CalcSheet = find("calc_sheet", lambda t: {c.kind for c in t.changes} <= {"count", "add"})
    rows = sheet_rows(task)
    name = task._plan[0]
    assert judged(task, sheet_evidence(task, make_ods(name, rows))).reward == 1.0
    SHEET[how](task, rows)
    assert judged(task, sheet_evidence(task, make_ods(name, rows))).reward < 1.0


TOTAL = "total goes here"


def with_total(task: CalcSheet, total: str, row: Callable[[list[Any]], list[Any]] = list) -> bytes:
    """The solved sheet, with this as the cell of the total; ``row`` changes its row."""
    data = make_ods(task._plan[0], [*sheet_rows(task), row(["Total", "", TOTAL])])
    plain = f'<t:table-cell o:value-type="string"><x:p>{TOTAL}</x:p></t:table-cell>'
    return recontent(data, lambda content: content.replace(plain, total))


def recontent(data: bytes, change: Callable[[str], str]) -> bytes:
    """A spreadsheet with its contents changed as XML."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            if name == "content.xml":
                changed = change(part.decode())
                assert changed != part.decode()
                part = changed.encode()
            new.writestr(name, part)
    return out.getvalue()


def formula(text: str) -> str:
    return (
        f'<t:table-cell t:formula="of:={text}" o:value-type="float" o:value="9">'
        "<x:p>9</x:p></t:table-cell>"
    )


def totalled() -> tuple[CalcSheet, int]:
    """A task that asks for a total, and the row of its last count, from 1."""
    task: CalcSheet = find("calc_sheet", lambda t: any(c.kind == "total" for c in t.changes))
    return task, len(sheet_rows(task))


@pytest.mark.parametrize(
    "total",
    [
        "SUM([.C2:.C{n}])",
        "SUM([.$C$2:.$C${n}])",
        "SUM([.C1:.C{n}])",
        "SUM([.C{n}:.C2])",
        "SUM([$'{sheet}'.C2:.C{n}])",
        "SUM([.C2];[.C3:.C{n}])",
    ],
    ids=["plain", "absolute", "with the heading", "upwards", "with the sheet", "in two parts"],
)
def test_every_sum_of_all_counts_is_a_total(total: str) -> None:
    task, last = totalled()
    made = formula(total.format(n=last, sheet=task._plan[0]))
    assert judged(task, sheet_evidence(task, with_total(task, made))).reward == 1.0


NO_TOTAL = {
    "a number": '<t:table-cell o:value-type="float" o:value="9"><x:p>9</x:p></t:table-cell>',
    "the formula as text": (
        '<t:table-cell o:value-type="string"><x:p>=SUM(C2:C9)</x:p></t:table-cell>'
    ),
    "one count missing": formula("SUM([.C3:.C{n}])"),
    "the last count missing": formula("SUM([.C2:.C{m}])"),
    "one count twice": formula("SUM([.C2:.C{n}];[.C3])"),
    "another column": formula("SUM([.B2:.B{n}])"),
    "another sheet": formula("SUM([$Other.C2:.C{n}])"),
    "something added": formula("SUM([.C2:.C{n}];1)"),
    "no sum": formula("AVERAGE([.C2:.C{n}])"),
    "itself": formula("SUM([.C2:.C{o}])"),
}


@pytest.mark.parametrize("how", NO_TOTAL)
def test_a_total_that_is_none_is_caught(how: str) -> None:
    task, last = totalled()
    made = NO_TOTAL[how].format(n=last, m=last - 1, o=last + 1)
    assert 0.0 < judged(task, sheet_evidence(task, with_total(task, made))).reward < 1.0


def test_a_shelf_for_the_total_is_caught() -> None:
    task, last = totalled()
    data = with_total(task, formula(f"SUM([.C2:.C{last}])"), lambda row: [row[0], "A1", row[2]])
    assert judged(task, sheet_evidence(task, data)).reward == 0.0


def as_text(task: CalcSheet, content: str) -> str:
    """The count that was asked for, typed with an apostrophe before it."""
    value = next(change.value for change in task.changes if change.kind == "count")
    return content.replace(f'"float" o:value="{value}"><x:p>{value}<', f'"string"><x:p>{value}<')


def spaced(task: CalcSheet, content: str) -> str:
    item = task.lines[0][0]
    return content.replace(f"<x:p>{item}<", f"<x:p><x:s/>{item}<")


def spaced_twice(task: CalcSheet, content: str) -> str:
    item = task.lines[0][0]
    return content.replace(f"<x:p>{item}<", f'<x:p>{item}<x:s x:c="2"/><')


def broken(task: CalcSheet, content: str) -> str:
    item = task.lines[0][0]
    return content.replace(f"<x:p>{item}<", f"<x:p>{item}<x:line-break/><")


@pytest.mark.parametrize("how", [as_text, spaced, spaced_twice, broken])
def test_what_only_looks_alike_in_a_sheet_is_caught(how: Callable[[CalcSheet, str], str]) -> None:
    task: CalcSheet = find("calc_sheet", lambda t: {c.kind for c in t.changes} <= {"count", "add"})
    data = make_ods(task._plan[0], sheet_rows(task))
    changed = recontent(data, lambda content: how(task, content))
    assert judged(task, sheet_evidence(task, data)).reward == 1.0
    assert judged(task, sheet_evidence(task, changed)).reward < 1.0


def bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("content.xml", b"<a>" + b" " * (64 * 2**20) + b"</a>")
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [None, b"", b"PK\x03\x04", b"\0" * 1000, b"Item,Shelf\n", bomb()],
    ids=["missing", "empty", "torn", "zeros", "CSV", "a bomb"],
)
def test_a_file_that_is_no_sheet_is_caught(data: bytes | None) -> None:
    task: CalcSheet = find("calc_sheet")
    assert judged(task, sheet_evidence(task, data)).reward == 0.0


@pytest.mark.parametrize(
    "left",
    [
        ["stock.ods - LibreOffice Calc", "Save Document?"],
        ["stock.ods - LibreOffice Calc", "Untitled 1 - LibreOffice Calc"],
        ["stock.ods - LibreOffice Calc", "Save"],
    ],
    ids=["unsaved", "a second window", "a dialog"],
)
def test_a_spreadsheet_that_did_not_close_is_caught(left: list[str]) -> None:
    task: CalcSheet = find("calc_sheet", lambda t: {c.kind for c in t.changes} <= {"count", "add"})
    evidence = sheet_evidence(task, make_ods(task._plan[0], sheet_rows(task)))
    assert judged(task, evidence).reward == 1.0
    evidence["found"]["open"] = left
    assert judged(task, evidence).reward == 0.0


# --- pictures and archives -----------------------------------------------------------------------

_METHODS = {
    "right": Image.Transpose.ROTATE_270,
    "left": Image.Transpose.ROTATE_90,
    "mirror": Image.Transpose.FLIP_LEFT_RIGHT,
    "flip": Image.Transpose.FLIP_TOP_BOTTOM,
}


def redone(data: bytes, change: Callable[[Image.Image], Image.Image], kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        change(image.convert("RGB")).save(out, kind)
    return out.getvalue()


def picture_state(task: ViewPictures) -> dict[str, bytes | None]:
    files: dict[str, bytes | None] = dict(task.pictures)
    for change in task.changes:
        if change.kind == "delete":
            del files[change.file]
            continue
        turned = redone(
            task.pictures[change.file], lambda i, c=change: i.transpose(_METHODS[c.turn])
        )
        files[change.target or change.file] = turned
    return files


def picture_evidence(task: ViewPictures, files: dict[str, Any], titles: list[str]) -> Evidence:
    return {
        "before": {name: pack_bytes(data) for name, data in task.pictures.items()},
        "changes": [change.to_json() for change in task.changes],
        "found": {
            "folder": {"files": files_of(files)},
            "titles": titles,
            "elsewhere": [],
            "copies": {},
        },
    }


def copied(task: ViewPictures) -> Any:
    return next(change for change in task.changes if change.kind == "copy")


def spare(task: ViewPictures) -> str:
    asked = {change.file for change in task.changes}
    return next(name for name in task.pictures if name not in asked)


def on_copy(
    change: Callable[[Image.Image], Image.Image],
) -> Callable[[ViewPictures, dict[str, Any]], None]:
    def mutate(task: ViewPictures, files: dict[str, Any]) -> None:
        target = copied(task).target
        files[target] = redone(files[target], change)

    return mutate


PICTURES: dict[str, Callable[[ViewPictures, dict[str, Any]], None]] = {
    "not saved": lambda t, f: f.pop(copied(t).target) and None,
    "turned once more": on_copy(lambda i: i.transpose(Image.Transpose.ROTATE_90)),
    "upside down": on_copy(lambda i: i.transpose(Image.Transpose.ROTATE_180)),
    "cropped": on_copy(lambda i: i.crop((1, 1, i.width, i.height))),
    "scaled": on_copy(lambda i: i.resize((i.width * 2, i.height * 2))),
    "one pixel": on_copy(lambda i: i.putpixel((0, 0), (1, 2, 3)) or i),  # type: ignore[func-returns-value]
    "not turned": lambda t, f: f.update({copied(t).target: t.pictures[copied(t).file]}),
    "another name": lambda t, f: f.update({"other.png": f.pop(copied(t).target)}),
    "the original turned as well": lambda t, f: f.update({copied(t).file: f[copied(t).target]}),
    "another picture gone": lambda t, f: f.pop(spare(t)) and None,
    "another picture changed": lambda t, f: f.update({spare(t): f[copied(t).target]}),
    "a junk picture": lambda t, f: f.update({"junk.png": f[spare(t)]}),
    "no picture": lambda t, f: f.update({copied(t).target: b"no picture"}),
    "torn": lambda t, f: f.update({copied(t).target: f[copied(t).target][:60]}),
    "a JPEG of that name": lambda t, f: f.update(
        {copied(t).target: redone(f[copied(t).target], lambda i: i, "JPEG")}
    ),
}


@pytest.mark.parametrize("how", PICTURES)
def test_a_changed_picture_is_caught(how: str) -> None:
    task: ViewPictures = find(
        "view_pictures", lambda t: len(t.pictures) > len(t.changes) and copied(t).turn != "none"
    )
    files = picture_state(task)
    titles = [f"{copied(task).target} (1x1) 100%"]
    assert judged(task, picture_evidence(task, files, titles)).reward == 1.0
    PICTURES[how](task, files)
    assert judged(task, picture_evidence(task, files, titles)).reward < 1.0


def archive_evidence(
    task: UnpackArchive, targets: dict[str, Any], archives: dict[str, Any]
) -> Evidence:
    return {
        "archive": task.archive,
        "packed": pack_bytes(task.packed()),
        "files": {name: pack_bytes(data) for name, data in task.files.items()},
        "folders": task.folders,
        "found": {
            "archives": {"files": files_of(archives)},
            "targets": {"files": files_of(targets)},
            "elsewhere": [],
        },
    }


def unpacked(task: UnpackArchive) -> dict[str, bytes | None]:
    return {f"{f}/{task.archive}/{n}": d for f in task.folders for n, d in task.files.items()}


ARCHIVE: dict[str, Callable[[UnpackArchive, dict[str, Any], dict[str, Any]], None]] = {
    "nothing unpacked": lambda t, f, a: f.clear(),
    "a file missing": lambda t, f, a: f.pop(next(iter(f))) and None,
    "a file changed": lambda t, f, a: f.update({next(iter(f)): b"x"}),
    "a file emptied": lambda t, f, a: f.update({next(iter(f)): b""}),
    "a file renamed": lambda t, f, a: f.update({"renamed.txt": f.pop(next(iter(f)))}),
    "a junk file": lambda t, f, a: f.update({"junk.txt": b"junk"}),
    "a junk folder": lambda t, f, a: f.update({"junk/": None}),
    "another folder": lambda t, f, a: (
        [f.update({"elsewhere/" + n.partition("/")[2]: f.pop(n)}) for n in list(f)] and None
    ),
    "unpacked twice": lambda t, f, a: (
        [f.update({f"{t.folders[0]}/{n}": d}) for n, d in t.files.items()] and None
    ),
    "letter case of the folder": lambda t, f, a: (
        [f.update({n.upper(): f.pop(n)}) for n in list(f)] and None
    ),
    "the archive gone": lambda t, f, a: a.clear(),
    "the archive changed": lambda t, f, a: a.update({next(iter(a)): b"PK"}),
    "a file beside the archive": lambda t, f, a: a.update({"junk": b"junk"}),
}


@pytest.mark.parametrize("how", ARCHIVE)
def test_a_changed_archive_is_caught(how: str) -> None:
    task: UnpackArchive = find("unpack_archive")
    targets = unpacked(task)
    archives: dict[str, Any] = {f"{task.archive}.zip": task.packed()}
    assert judged(task, archive_evidence(task, targets, archives)).reward == 1.0
    ARCHIVE[how](task, targets, archives)
    assert judged(task, archive_evidence(task, targets, archives)).reward < 1.0


FILES = ["edit_text", "file_manager", "calc_sheet", "view_pictures", "unpack_archive"]
SOLVED: dict[str, Callable[[Any], bool]] = {
    "calc_sheet": lambda t: all(c.kind != "total" for c in t.changes),
    "file_manager": lambda t: any(r.kind == "delete" for r in t.rules),
    "view_pictures": lambda t: any(c.kind == "delete" for c in t.changes),
}


def solved_files(name: str) -> tuple[SeededTask, Evidence]:
    task = find(name, SOLVED.get(name, lambda t: True))
    return task, {
        "edit_text": lambda: text_evidence(task, text_state(task)),
        "file_manager": lambda: tidy_evidence(task, tidy_state(task)),
        "calc_sheet": lambda: sheet_evidence(task, make_ods(task._plan[0], sheet_rows(task))),
        "view_pictures": lambda: picture_evidence(task, picture_state(task), []),
        "unpack_archive": lambda: archive_evidence(
            task, unpacked(task), {f"{task.archive}.zip": task.packed()}
        ),
    }[name]()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("elsewhere", [["Desktop/copy.txt"], ["copy\n.txt"], None])
def test_a_file_put_elsewhere_in_the_home_is_caught(name: str, elsewhere: list[str] | None) -> None:
    task, evidence = solved_files(name)
    assert judged(task, evidence).reward == 1.0
    evidence["found"]["elsewhere"] = elsewhere
    score = judged(task, evidence)
    assert score.reward == 0.0
    assert "nothing was put elsewhere" in score.output


def deleted(task: Any) -> str:
    if task.name == "file_manager":
        return str(next(rule.moves[0][0] for rule in task.rules if rule.kind == "delete"))
    return str(next(change.file for change in task.changes if change.kind == "delete"))


@pytest.mark.parametrize("name", ["file_manager", "view_pictures"])
@pytest.mark.parametrize("many", [False, True])
def test_what_is_kept_in_a_place_of_programs_is_not_deleted(name: str, many: bool) -> None:
    task, evidence = solved_files(name)
    before = judged(task, evidence).checks
    evidence["found"]["copies"] = None if many else {"/home/user/.config/x": deleted(task)}
    score = judged(task, evidence)
    assert score.reward == 0.0
    lost = {c.name for c in before if c.passed} - {c.name for c in score.checks if c.passed}
    assert len(lost) == 2, "the deletion, and the guard"


def test_every_verifier_of_files_has_its_mutations() -> None:
    tables: list[dict[str, Any]] = [TEXT, TIDY, SHEET, PICTURES, ARCHIVE]
    assert all(len(table) >= FEWEST for table in tables)


def test_the_judges_lie_beside_their_tasks() -> None:
    for name in [*WEB, *FILES]:
        assert Path(load_task(name).judge).is_file()

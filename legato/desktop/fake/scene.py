"""A live screen: focus, keyboard and mouse, what is saved, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from legato.desktop import actions as a
from legato.desktop.contract import Check, Score
from legato.desktop.fake import drawing as d
from legato.desktop.fake.generate import scene_of
from legato.desktop.fake.layout import lay_out
from legato.desktop.fake.spec import SceneSpec, Value, describe_goal
from legato.desktop.fake.text_field import TextField
from legato.desktop.fake.widgets import Button, Clipboard, Stroke, Widget
from legato.desktop.keys import MODIFIERS, parse_chord

_CONTROL = frozenset({"Control_L", "Control_R"})
_SHIFT = frozenset({"Shift_L", "Shift_R"})
_BLOCKING = MODIFIERS - _CONTROL - _SHIFT


class Scene:
    """One task's window on a screen of ``width`` x ``height`` pixels.

    Raises ``ConfigError`` if the screen is too small for it.
    """

    def __init__(
        self, spec: SceneSpec, width: int, height: int, instruction: str, hint: str = ""
    ) -> None:
        self.spec = spec
        self.width, self.height = width, height
        self.layout = lay_out(spec, instruction, hint, width, height)
        self.widgets: dict[str, Widget] = dict(pair for page in self.layout.pages for pair in page)
        self.focus: Widget | None = None
        self._initial = self.values()
        self._saved: dict[str, Value] | None = None
        self._pointer = (width // 2, height // 2)
        self._grabbed: Widget | None = None
        self._held: set[str] = set()
        self._clipboard = Clipboard()

    # --- state ---------------------------------------------------------------------------------

    def values(self) -> dict[str, Value]:
        """What every widget holds now, saved or not."""
        return {name: widget.value for name, widget in self.widgets.items()}

    @property
    def page(self) -> int:
        """Number of the tab in front."""
        return 0 if self.layout.tabs is None else self.layout.tabs.value

    def verdict(self) -> Score:
        """Judge the saved state (the live one if the screen has no Save button).

        The reward is the share of the goal's values that are as asked. It is 0 if nothing was
        saved, or if any other value is not as it was in the beginning.
        """
        final = self._saved if self.spec.save else self.values()
        seen = self._initial if final is None else final
        progress = [
            Check(name, "progress", seen[name] == wanted, f"{seen[name]!r}, wanted {wanted!r}")
            for name, wanted in self.spec.goal.items()
        ]
        spoilt = [
            name
            for name, value in self._initial.items()
            if name not in self.spec.goal and seen[name] != value
        ]
        guards = [Check("nothing else changed", "guard", not spoilt, ", ".join(spoilt))]
        if self.spec.save:
            guards.append(Check("saved", "guard", final is not None))
        made = sum(check.passed for check in progress)
        sound = all(check.passed for check in guards)
        return Score(
            reward=made / len(progress) if sound else 0.0,
            checks=(*progress, *guards),
            output=f"{made}/{len(progress)} changes made"
            + "".join(f"; guard failed: {check.name}" for check in guards if not check.passed),
        )

    # --- what is seen --------------------------------------------------------------------------

    def view(self) -> d.View:
        pictures = [self.layout.note, *self.layout.captions[self.page]]
        for widget in self._visible():
            pictures.extend(widget.pictures(widget is self.focus))
        if (place := self.layout.status) is not None:
            look = d.TextLook(
                place.width, place.height, self.layout.size, (self._status(),), colour=d.FAINT
            )
            pictures.append((place.x0, place.y0, look))
        return d.View(self.layout.backdrop, tuple(pictures), self._pointer)

    def _status(self) -> str:
        if self.values() != (self._initial if self._saved is None else self._saved):
            return "Unsaved changes"
        return "No changes" if self._saved is None else "Saved"

    def _visible(self) -> list[Widget]:
        """In the order Tab visits them."""
        extra = (self.layout.revert, self.layout.save)
        shown = [] if self.layout.tabs is None else [self.layout.tabs]
        return [
            *shown,
            *(widget for _, widget in self.layout.pages[self.page]),
            *(button for button in extra if button is not None),
        ]

    # --- input ---------------------------------------------------------------------------------

    def apply(self, action: a.AnyAction) -> None:
        """Perform one action. Raises ``ActionError``, and then nothing has changed."""
        a.check_on_screen(action, self.width, self.height)
        match action:
            case a.Click() | a.DoubleClick() | a.TripleClick():
                clicks = {"click": 1, "double_click": 2, "triple_click": 3}[action.action_type]
                self._click(action.x, action.y, clicks)
            case a.Move() | a.RightClick() | a.MiddleClick():
                self._move(action.x, action.y)
            case a.Drag():
                start, *path = action.points()
                self._press(*start)
                for x, y in path:
                    self._move(x, y)
                self._release()
            case a.MouseDown() | a.MouseUp():
                for x, y in action.points():
                    self._move(x, y)
                if action.button == "left":
                    if action.action_type == "mouse_down":
                        self._press(*self._pointer)
                    else:
                        self._release()
            case a.Scroll():
                self._scroll(action)
            case a.Type():
                self._type(action.text)
            case a.Key():
                *held, last = parse_chord(action.key)
                self._stroke(last, self._held | set(held))
            case a.KeyDown():
                for name in parse_chord(action.key):
                    if name in MODIFIERS:
                        self._held.add(name)
                    else:
                        self._stroke(name, self._held)
            case a.KeyUp():
                self._held.difference_update(parse_chord(action.key))
            case a.Wait() | a.TakeScreenshot() | a.Done() | a.Fail() | a.Answer():
                pass
            case _:
                assert_never(action)

    def _click(self, x: int, y: int, clicks: int) -> None:
        for count in range(1, clicks + 1):
            self._press(x, y, count)
            self._release()

    def _move(self, x: int, y: int) -> None:
        self._pointer = (x, y)
        if self._grabbed is not None:
            self._grabbed.drag(x, y)

    def _press(self, x: int, y: int, clicks: int = 1) -> None:
        if self._grabbed is not None:  # the button is down already
            return self._move(x, y)
        self._pointer = (x, y)
        target = self._at(x, y)
        if target is None:
            return
        self._grabbed = self.focus = target
        target.press(x, y, clicks=clicks, extend=bool(self._held & _SHIFT))

    def _release(self) -> None:
        target, self._grabbed = self._grabbed, None
        if target is not None and target.release(*self._pointer):
            self._activate(target)

    def _scroll(self, action: a.Scroll) -> None:
        self._move(action.x, action.y)
        target = self._at(action.x, action.y)
        if target is not None and action.direction in ("up", "down"):
            target.wheel(action.amount if action.direction == "down" else -action.amount)

    def _type(self, text: str) -> None:
        """Line ends and tabs are the keys they stand for; what no key can type is left out."""
        run: list[str] = []
        for char in [*text, ""]:
            if len(char) == 1 and char.isprintable():
                run.append(char)
                continue
            if run and self.focus is not None and self.focus.insert("".join(run)):
                self._activate(self.focus)
            run.clear()
            if char in ("\n", "\t", "\b"):
                self._stroke(parse_chord(char)[0], set())

    def _stroke(self, key: str, held: set[str]) -> None:
        stroke = Stroke(key, ctrl=bool(held & _CONTROL), shift=bool(held & _SHIFT))
        if key in MODIFIERS or held & _BLOCKING:
            return
        if key == "Tab" and not stroke.ctrl:
            self._next_focus(-1 if stroke.shift else 1)
        elif stroke.ctrl and key in ("s", "S") and self.layout.save is not None:
            self._activate(self.layout.save)
        elif stroke.ctrl and key in ("Page_Up", "Page_Down") and self.layout.tabs is not None:
            step = Stroke("Left" if key == "Page_Up" else "Right")
            self.layout.tabs.stroke(step, self._clipboard)
            self._drop_hidden_focus()
        elif self.focus is None:
            return
        elif len(key) == 1 and not stroke.ctrl:
            if self.focus.insert(key.upper() if stroke.shift else key):
                self._activate(self.focus)
        elif self.focus.stroke(stroke, self._clipboard):
            self._activate(self.focus)

    def _activate(self, widget: Widget) -> None:
        if widget is self.layout.save:
            self._saved = self.values()
        elif widget is self.layout.revert:
            for name, value in (self._initial if self._saved is None else self._saved).items():
                self.widgets[name].restore(value)
        elif isinstance(widget, Button):
            widget.value = True

    def _next_focus(self, step: int) -> None:
        order = self._visible()
        if self.focus is None:
            self.focus = order[0 if step > 0 else -1]
        else:
            self.focus = order[(order.index(self.focus) + step) % len(order)]
        if isinstance(self.focus, TextField):
            self.focus.select_all()

    def _at(self, x: int, y: int) -> Widget | None:
        return next((w for w in self._visible() if w.place.holds(x, y)), None)

    def _drop_hidden_focus(self) -> None:
        if self.focus not in self._visible():
            self.focus = self.layout.tabs


def open_scene(
    task_id: str, config: Mapping[str, Any], instruction: str, screen: tuple[int, int]
) -> Scene:
    """The fresh screen of a task, with its instruction at the top.

    A task made for another desktop knows nothing of this screen, so what there is to do on it is
    added below. Raises ``ConfigError`` if the config is invalid or the screen too small for it.
    """
    spec, asked = scene_of(task_id, config, screen)
    hint = "" if asked else f"On this screen: {describe_goal(spec)}"
    return Scene(spec, *screen, instruction, hint)

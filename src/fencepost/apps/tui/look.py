"""How it looks. Nothing is said by colour alone: signs and words stand beside it."""

import os
from collections.abc import Mapping

CSS = """
Screen { layers: base; background: $background; }
#transcript { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
#unsaved { display: none; height: auto; max-height: 3; background: $error; color: $text; padding: 0 1; }
#unsaved { text-style: bold reverse; }
#unsaved.shown { display: block; }
#waiting { display: none; height: auto; max-height: 4; padding: 0 1; color: $text-muted; }
#waiting.shown { display: block; }
#prompt { height: auto; min-height: 1; max-height: 6; border: none; border-top: solid $primary; padding: 0 1; }
#prompt:focus { border: none; border-top: heavy $accent; }
#hint { height: auto; max-height: 2; padding: 0 1; color: $text-muted; }
#status { height: 1; padding: 0 1; text-style: reverse; }
.said { margin: 1 0 0 0; padding: 0 1; border-left: thick $accent; text-style: bold; height: auto; }
.answer { margin: 0; padding: 0 0 0 1; height: auto; background: transparent; }
.quiet { color: $text-muted; height: auto; }
.warning { color: $warning; height: auto; }
.bad { color: $error; text-style: bold; height: auto; }
.card { height: auto; margin: 0; }
.card:focus > .head { text-style: reverse; }
.card.nested { margin-left: 2; }
.card .head { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
.card .body { height: auto; padding: 0 0 0 2; border-left: solid $primary; margin-left: 1; }
.card .body Static { height: auto; }
Choosing, Picker, Pager { align: center middle; }
.dialog { width: 96%; max-width: 110; height: auto; max-height: 96%; padding: 0 1; background: $surface; }
.dialog { border: round $accent; }
.dialog.tall { height: 96%; max-width: 160; }
.dialog .title { height: auto; max-height: 3; margin-bottom: 1; }
.dialog .matter { height: auto; max-height: 60vh; scrollbar-size-vertical: 1; }
.dialog .matter Static { height: auto; }
.dialog .choices { height: auto; max-height: 8; margin-top: 1; border: none; padding: 0; background: transparent; }
OptionList > .option-list--option-highlighted { text-style: reverse; }
.dialog .hint { height: 1; }
.dialog Input { border: none; height: 1; padding: 0; margin-bottom: 1; }
.dialog Log { height: 1fr; scrollbar-size-vertical: 1; }
#rows { height: 1fr; scrollbar-size-vertical: 1; }
#count { height: 1; }
"""


def without_colour(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal has no colours, or nobody wants them."""
    term = environ.get("TERM", "")
    return "NO_COLOR" in environ or term.startswith("vt") or term.endswith(("-m", "-mono"))

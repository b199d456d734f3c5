"""One palette: contrast in both themes, marks beside colours, and the theme file in step with it."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path

import pytest

from pages.ui.kit import palette, style
from pages.ui.kit.palette import PAIRS, PAUSED, STAGES, STATES, STATUSES, THEMES, mix, tint

REPO = Path(__file__).resolve().parents[2]


def contrast(first: str, second: str) -> float:
    """WCAG contrast ratio of two ``#rrggbb`` colours, 1 to 21."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("theme", "name"), list(product(THEMES, STATES)))
def test_text_on_every_chip_has_at_least_4_5_to_1_in_both_themes(theme: palette.ThemeName, name: str) -> None:
    state, page = STATES[name], THEMES[theme]
    if name in {"unreached", "cut"}:  # drawn without a fill, in the soft ink
        assert min(contrast(page.soft, page.background), contrast(page.soft, page.raised)) >= 4.5
    else:
        assert contrast(page.ink, tint(state, theme)) >= 4.5


@pytest.mark.parametrize(("theme", "state"), list(product(THEMES, [*STATUSES.values(), PAUSED, *PAIRS.values()])))
def test_every_badge_has_at_least_4_5_to_1_in_both_themes(theme: palette.ThemeName, state: palette.State) -> None:
    assert contrast(THEMES[theme].ink, tint(state, theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_running_text_notes_and_links_are_readable_in_both_themes(theme: palette.ThemeName) -> None:
    page = THEMES[theme]
    for text, ground in product((page.ink, page.soft, page.link), (page.background, page.raised)):
        assert contrast(text, ground) >= 4.5
    assert contrast("#FFFFFF", palette.BLUE) >= 4.5  # the Run button


def test_contrast_and_mix_agree_with_known_values() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)
    assert mix("#FF0000", "#FFFFFF", 0.5) == "#FF8080"


def test_no_two_states_share_mark_and_no_two_stages_share_colour() -> None:
    marks = [state.mark for state in STATES.values() if state.name != "plain"]
    assert len(set(marks)) == len(marks)
    assert all(marks)
    assert len({stage.colour for stage in STAGES.values()}) == len(STAGES)
    status_marks = [status.mark for status in (*STATUSES.values(), PAUSED)]
    assert len(set(status_marks)) == len(status_marks)
    assert len({state.mark for state in PAIRS.values()}) == len(PAIRS)


def test_the_fates_have_the_okabe_ito_colours_of_the_specification() -> None:
    colours = {name: STATES[name].colour for name in ("accepted", "rejected", "correction", "bonus")}
    assert colours == {"accepted": "#009E73", "rejected": "#D55E00", "correction": "#0072B2", "bonus": "#CC79A7"}


def test_the_theme_file_has_the_palettes_colours() -> None:
    config = tomllib.loads((REPO / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    for name, page in THEMES.items():
        theme = config["theme"][name]
        assert theme["backgroundColor"] == page.background
        assert theme["secondaryBackgroundColor"] == page.raised
        assert theme["textColor"] == page.ink
        assert theme["borderColor"] == page.line
        assert theme["linkColor"] == page.link


def test_the_style_sheet_names_every_state_and_uses_no_colour_of_its_own() -> None:
    sheet = style.sheet()
    for name, state in STATES.items():
        assert f'.sl-{name} {{ --edge: {state.colour}; --mark: "{state.mark}"' in sheet
    rules = "".join(file.read_text(encoding="utf-8") for file in (REPO / "pages" / "ui").rglob("*.css"))
    assert [word for word in rules.split() if word.startswith("#") and word != "#fff;"] == []

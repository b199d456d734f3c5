"""Example prompts. The first is the default: an edit, for which prompt lookup copies most of the answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """Example prompt with suitable limits. ``note``: what to look for."""

    name: str
    prompt: str
    note: str
    chat: bool = True
    max_new_tokens: int = 128


_LISTING = """def area(width, height):
    return width + height

def perimeter(width, height):
    return 2 * (width + height)

def describe(width, height):
    print("area:", area(width, height))
    print("perimeter:", perimeter(width, height))"""

_NOTICE = (
    "The reading room on the second floor is open from Monday to Friday between nine in the morning and six in the "
    "evening. Visitors are asked to leave coats and bags in the lockers by the entrance, and to speak quietly. "
    "Books from the open shelves may be read here but not borrowed. Ask at the desk for maps and newspapers."
)

_MISSPELT = _NOTICE.replace("second", "secnd").replace("borrowed", "borowed").replace("newspapers", "newspappers")

EXAMPLES: tuple[Example, ...] = (
    Example(
        "Correct the spelling",
        f"Correct the spelling mistakes in this text:\n\n{_MISSPELT}",
        "The answer copies most of the prompt: prompt lookup drafts long stretches, broken where a word is corrected.",
        max_new_tokens=120,
    ),
    Example(
        "Repeat a notice",
        f"Repeat this text exactly:\n\n{_NOTICE}",
        "Pure copying: whole drafts are accepted, round after round.",
        max_new_tokens=120,
    ),
    Example(
        "Extract from a text",
        f"{_NOTICE}\n\nCopy the sentences of this text that say when and where it is open, word for word.",
        "Extraction: the answer is in the prompt.",
        max_new_tokens=120,
    ),
    Example(
        "Correct a listing",
        f"The function area is wrong: it should multiply. Write the corrected program.\n\n```python\n{_LISTING}\n```",
        "Code repeats itself and the prompt, with free text between.",
        max_new_tokens=160,
    ),
    Example(
        "Explain an idea",
        "Explain in a few sentences why the sky is blue.",
        "Free text: little to copy, so prompt lookup drafts seldom and speculation pays less.",
    ),
    Example(
        "Continue a story",
        "The lighthouse keeper had not seen a ship for eleven days when",
        "No chat template: the model continues the text as it is.",
        chat=False,
    ),
)

"""One rule for the names of classes, whether a folder, a label or a person brings them; and names of files made readable.

A name is what can be seen and told apart: letters, marks, digits, signs and spaces of any script, in Unicode's composed form
(NFC), so that one name written in two ways is one class. Joiners are part of Persian, of Indic scripts and of emoji, and
count between two characters; what has no picture of its own, or turns the direction of writing, is refused.
"""

import unicodedata

from fscl.errors import DataError

MAX_LENGTH = 500
JOINERS = "\u200c\u200d"
_NEVER = ("Cc", "Cs", "Co", "Cn", "Zl", "Zp")  # controls, halves of characters, private and unassigned ones, line ends
_SIGNS = range(0x600, 0x606), (0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)  # format characters that are seen
_TAGS = range(0xE0020, 0xE0080)  # the rest of a flag
_BLACK_FLAG = "\U0001f3f4"
# letters and marks without a picture: fillers, the joiner of graphemes, a blank pattern of Braille, and selectors
_UNSEEN = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810)}
_SELECTORS = range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)


def class_name(text: str) -> str:
    """The name of a class in composed form; a sentence says why if it cannot be one.

    Examples:
        >>> class_name("Cafe\\u0301") == "Caf\\u00e9"
        True
    """
    name = unicodedata.normalize("NFC", text)
    fault = _fault(name)
    if fault is not None:
        shown = readable(name if len(name) <= 60 else name[:60] + "…")
        raise DataError(f"the name of a class {fault}, but one is '{shown}'. Rename it.")
    return name


def look(name: str) -> str:
    """What two names have in common that look alike: spaces of every kind count as one, joiners and outer spaces not."""
    spaced = "".join(" " if unicodedata.category(each) == "Zs" else each for each in name if each not in JOINERS)
    return " ".join(spaced.split())


def readable(text: str) -> str:
    """A text that can be shown and stored: what would steer a terminal, or is no character, as an escape.

    Examples:
        >>> readable("a\\x1b[31mb\\udcff")
        'a\\\\x1b[31mb\\\\udcff'
    """
    return "".join(each if _is_harmless(each) else _escaped(each) for each in text)


def printable(text: str) -> str:
    """The same of several lines."""
    return "\n".join(map(readable, text.split("\n")))


def _fault(name: str) -> str | None:
    if not 1 <= len(name) <= MAX_LENGTH:
        return f"has 1 to {MAX_LENGTH} characters"
    if not any(_is_seen(each) for each in name):
        return "has a character that can be seen"
    for position, each in enumerate(name):
        if not _is_allowed(name, position):
            return f"has only characters that can be seen ({unicodedata.name(each, f'U+{ord(each):04X}')} cannot)"
    return None


def _is_seen(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNPS" and ord(character) not in _UNSEEN


def _is_allowed(name: str, position: int) -> bool:
    character, kind = name[position], unicodedata.category(name[position])
    if character in JOINERS:
        return 0 < position < len(name) - 1 and not {name[position - 1], name[position + 1]} & {*JOINERS, " "}
    if any(ord(character) in span for span in _SELECTORS):
        return position > 0 and _is_seen(name[position - 1])
    if ord(character) in _TAGS:
        return _BLACK_FLAG in name[:position]
    if kind == "Cf":
        return any(ord(character) in span for span in _SIGNS)
    return kind not in _NEVER and ord(character) not in _UNSEEN


def _is_harmless(character: str) -> bool:
    if character in JOINERS or any(ord(character) in span for span in _SIGNS) or ord(character) in _TAGS:
        return True
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

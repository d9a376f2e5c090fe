"""A drawing as an <svg> element for the page, or as a file of its own. Same drawing, same bytes."""

import io
import re
from xml.etree import ElementTree

from matplotlib.figure import Figure

from fscl.report.figures.tips import SVG, add_tips

INK = "#010203"  # stands for currentColor until the SVG is written
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
XLINK = "http://www.w3.org/1999/xlink"


def to_svg(figure: Figure, name: str, title: str) -> str:
    """An <svg> element that can stand beside others in one page: ids begin with `name`, no date, no fixed size."""
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(buffer.getvalue())  # what matplotlib has drawn  # nosec B314
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):
                parent.remove(child)
    seen: set[str] = set()
    for element in root.iter():
        if element.get("id", "") in seen:  # a shape defined twice, under an id that is a hash of its content
            del element.attrib["id"]
        seen.add(element.get("id", "no id"))
        for key, value in element.attrib.items():
            element.set(key, _rewrite(key, value, name))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    add_tips(figure, root)
    return ElementTree.tostring(root, encoding="unicode")


def stand_alone(svg: str) -> str:
    """The same figure as a file of its own: with a size, and dark ink on white wherever it is shown."""
    root = ElementTree.fromstring(svg)  # a figure of ours  # nosec B314
    _, _, width, height = root.attrib["viewBox"].split()
    root.set("width", f"{width}pt")
    root.set("height", f"{height}pt")
    root.set("style", f"color: #222; background: #fff; {root.get('style', '')}")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _rewrite(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == f"{{{XLINK}}}href" and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    if key == "style":
        value = re.sub(r"(font-family:|font: [^;']*?px) [^;]*", rf"\1 {FONTS}", value)
    return value.replace("url(#", f"url(#{name}-").replace(INK, "currentColor")

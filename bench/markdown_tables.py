"""Markdown tables."""


def table(header, rows):
    """A table of texts; nothing without rows."""
    lines = [header, ["---"] * len(header), *rows] if rows else []
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"

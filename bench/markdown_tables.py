"""Markdown tables of stored numbers."""

NOT_MEASURED = "not measured"


def table(header, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows))


def set_table(header, records, names, cells):
    """A row for every name and every other record: its name, and ``cells(numbers)`` or that it was not measured."""
    rows = []
    for name in dict.fromkeys([*names, *records]):
        missing = [NOT_MEASURED] + [""] * (len(header) - 2)
        rows.append([name, *(cells(records[name]["numbers"]) if name in records else missing)])
    return table(header, rows)


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def tally(records, pair, what, name):
    """On how many sets xgpc's number is the lower one, and on which it is not; ``pair(numbers)``: ours and theirs."""
    pairs = {key: pair(record["numbers"]) for key, record in records.items()}
    lost = [key for key, (ours, theirs) in pairs.items() if ours is None or ours > theirs]
    return (f"{what} is lower than or equal to {name} on {len(pairs) - len(lost)} of {len(pairs)} sets"
            + (f", higher on {', '.join(lost)}." if lost else "."))  # fmt: skip

"""Splitters that tell what they are given."""


def recording(splitter):
    """The splitter, and a list to which each of its calls adds X, y, groups and the splits."""
    calls, split = [], splitter.split

    def recorded(X, y=None, groups=None):
        found = list(split(X, y, groups))
        calls.append((X, y, groups, found))
        return iter(found)

    splitter.split = recorded
    return splitter, calls

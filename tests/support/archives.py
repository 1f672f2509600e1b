"""Model files taken apart and put together again."""

import io
import json

import numpy as np


def read(content):
    """Header and arrays of a file's bytes."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    return json.loads(arrays.pop("header").tobytes()), arrays


def write(header, arrays):
    """The bytes of a file; a header that is text is written as it is."""
    buffer = io.BytesIO()
    text = header if isinstance(header, str) else json.dumps(header)
    np.savez(buffer, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    return buffer.getvalue()

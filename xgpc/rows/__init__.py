"""Where training rows live, and who works on them."""

from .columnar import from_arrow, from_npy, from_parquet

__all__ = ["from_arrow", "from_npy", "from_parquet"]

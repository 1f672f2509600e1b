"""Where training rows live, and who works on them."""

from .columnar import from_arrow, from_npy, from_parquet
from .reservoir import Reservoir

__all__ = ["Reservoir", "from_arrow", "from_npy", "from_parquet"]

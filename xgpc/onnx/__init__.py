"""Export of fitted classifiers as ONNX models, which predict without xgpc and without Python (extra ``onnx``)."""

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise ImportError("Models as ONNX files need the onnx package: pip install 'xgpc[onnx]'") from error

from .export import to_onnx
from .pipelines import register

__all__ = ["register", "to_onnx"]

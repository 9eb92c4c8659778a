"""Let torchvision, built for CUDA, be imported beside a torch that was not.

torchvision declares meta kernels for its operators ``nms`` and ``qnms`` when it is imported. Its
extension cannot be loaded without CUDA's libraries, so the two operators do not exist and the
import fails. Declaring their schemas first is enough: image processors use no operator of it.
"""

import importlib
import sys

_keep: list[object] = []  # a torch Library takes its schemas along when it is collected


class _DeclareFirst:
    """Acts on the first import of torchvision, then steps out of the way; finds nothing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            _declare()


def _declare() -> None:
    torch = importlib.import_module("torch")
    if torch.version.cuda is None:
        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _keep.append(library)


sys.meta_path.insert(0, _DeclareFirst())

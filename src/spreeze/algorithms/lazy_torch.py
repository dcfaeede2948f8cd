"""torch, imported at its first use.

The files of this package declare what the supervisor has to know of an algorithm (settings, recipe, figures). Reading
that must not cost the 1.3 s and 200 MB of importing torch, so they take torch from here:
`from spreeze.algorithms.lazy_torch import torch`. Algorithms of your own may simply `import torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
else:

    class _Torch:
        def __getattr__(self, name: str) -> Any:
            import torch

            value = getattr(torch, name)
            setattr(self, name, value)  # found without this call from now on
            return value

    torch = _Torch()

__all__ = ["torch"]

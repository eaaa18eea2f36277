"""GPTQModel 7.7.0 behind the protocol. Runs in an environment of its own (`make gptqmodel`, 5 GB).

The tool sums up the Hessian itself, from inputs. It is given as many as the layer has input features, with the same sum
of x x^T: the rows of a square root of it.
"""

import torch
from protocol import Quantize, Tensors, layer_with, serve


def load() -> Quantize:
    """The tool's per-layer GPTQ."""
    from gptqmodel.quantization import QuantizeConfig  # pyright: ignore[reportMissingImports]
    from gptqmodel.quantization.gptq import GPTQ  # pyright: ignore[reportMissingImports]

    def quantize(tensors: Tensors, options: dict[str, str]) -> Tensors:
        config = QuantizeConfig(
            bits=int(options["bits"]),
            group_size=int(options["group_size"]),
            sym=options["symmetric"] == "true",
            damp_percent=float(options["damp"]),
            desc_act=options["act_order"] == "true",
            static_groups=options["static_groups"] == "true",
            act_group_aware=False,
        )
        gptq = GPTQ(layer_with(tensors["weight"]), qcfg=config)
        gptq.quantizer.configure(perchannel=True)
        gptq.add_batch(square_root(tensors["hessian"]).unsqueeze(0), None)
        weight, scale, zero, group, *_ = gptq.quantize()
        return {"weight": weight, "scale": scale, "zero": zero, "group": group}

    return quantize


def square_root(hessian_II: torch.Tensor) -> torch.Tensor:
    """R with R^T R = H, float32. Inputs that are zero in H are exactly zero in R."""
    value_I, vector_II = torch.linalg.eigh(hessian_II.double())
    root_II = value_I.clamp(min=0).sqrt().unsqueeze(1) * vector_II.T
    return root_II.masked_fill(hessian_II.diagonal() == 0, 0).float()


if __name__ == "__main__":
    serve(load)

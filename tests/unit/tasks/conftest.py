import pytest
import torch
from torch import nn

from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig

_TRANSLATORS = {
    "transformer": TransformerConfig(
        d_model=18, n_layers=2, dropout=0.0, layer={"mixer": {"n_heads": 3}, "channels": {"d_ff": 11}}
    ),
    "recurrent": RecurrentConfig(d_embedding=7, d_hidden=11),
}


@pytest.fixture(params=_TRANSLATORS)
def translator(request) -> nn.Module:
    """An encoder-decoder for a vocabulary of 23 that looks at its sources unevenly."""
    torch.manual_seed(5)
    model = build_model(_TRANSLATORS[request.param], 23, 23).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)  # far from even attention
    return model

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from heedful.engine import choosing, native, running
from heedful.engine.choosing import Autocast, Inference, check_precision
from heedful.engine.compiled import CompiledModel
from heedful.errors import RequestError
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.layout import Tokens
from heedful.nn.taps import capture

needs_library = pytest.mark.skipif(native.library() is None, reason="no C compiler here")


CONFIG = TransformerConfig(
    d_model=14, n_layers=1, dropout=0.0, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
)


def model_of(**changes):
    torch.manual_seed(1)
    return build_model(CONFIG.changed(**changes), 31, 31).eval()


def test_a_precision_is_one_of_four():
    assert [check_precision(name) for name in ("auto", "fp32", "bf16", "int8")] == [
        "auto",
        "fp32",
        "bf16",
        "int8",
    ]
    with pytest.raises(RequestError, match=r"unknown precision 'bf61' \(did you mean 'bf16'\?\).*auto, fp32"):
        Inference(model_of(), "bf61")


@needs_library
@pytest.mark.parametrize(
    "asked, got", [("auto", "fp32"), ("fp32", "fp32"), ("bf16", "bf16"), ("int8", "int8")]
)
def test_a_model_that_the_engine_knows_runs_there(asked, got):
    inference = Inference(model_of(), asked)
    assert inference.description == f"{got} on the native engine"
    ready = inference.ready()
    assert isinstance(ready, CompiledModel)
    assert ready.engine.precision == got
    assert inference.ready() is ready


@needs_library
def test_each_thread_has_memory_of_its_own():
    inference, found = Inference(model_of()), []
    threads = [threading.Thread(target=lambda: found.append(inference.ready())) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    assert len({id(model) for model in [*found, inference.ready()]}) == 4
    assert len({id(model.engine) for model in found}) == 1


@needs_library
def test_threads_wait_for_the_engine_that_one_of_them_compiles(monkeypatch):
    inference, n_compiled = Inference(model := model_of()), []

    def slowly(*arguments):
        n_compiled.append(1)
        time.sleep(0.2)
        return compiled(*arguments)

    compiled = choosing.compile_model
    monkeypatch.setattr(choosing, "compile_model", slowly)
    with torch.no_grad():
        next(model.parameters()).add_(1)  # the engine has other weights now
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: inference.ready(), range(4))]
    assert [type(each) for each in found] == [CompiledModel] * 4
    assert len({id(each.engine) for each in found}) == len(n_compiled) == 1


def test_another_model_goes_the_plain_way_and_says_why():
    model = model_of(layer={"mixer": {"score": "additive"}})
    inference = Inference(model)
    assert inference.ready() is model
    assert inference.description.startswith("fp32 on the plain path (")
    with pytest.raises(
        RequestError, match=r"int8 needs the native engine, which cannot be used here .*fp32 or bf16"
    ):
        Inference(model, "int8")


def test_without_a_library_all_models_go_the_plain_way(monkeypatch):
    monkeypatch.setattr(running.native, "library", lambda: None)
    monkeypatch.setattr(running.native, "unavailable", lambda: "there is no C compiler")
    inference = Inference(model := model_of())
    assert inference.ready() is model
    assert inference.description == "fp32 on the plain path (no native library: there is no C compiler)"
    with pytest.raises(RequestError, match="there is no C compiler"):
        Inference(model, "int8")


@needs_library
def test_whoever_wants_weights_gets_the_model_itself():
    model = model_of()
    assert Inference(model).ready(attention=True) is model
    assert isinstance(Inference(model, "bf16").ready(attention=True), Autocast)
    with pytest.raises(RequestError, match=r"int8 does not support coverage"):
        Inference(model, "int8").ready(attention=True)


def test_autocast_computes_products_in_bf16(monkeypatch):
    monkeypatch.setattr(
        choosing, "compile_model", lambda *_: (_ for _ in ()).throw(choosing.UnsupportedError("not here"))
    )
    model = model_of()
    inference = Inference(model, "bf16")
    assert inference.description == "bf16 on the plain path (not here)"
    seen = []
    model.heads["token"].register_forward_hook(lambda _, args, out: seen.append(out.dtype))
    inference.ready().heads["token"](torch.randn(3, 14))
    assert seen == [torch.bfloat16]
    assert nn.Linear(14, 3)(torch.randn(1, 14)).dtype == torch.float32


def test_what_computes_for_a_decoder_runs_under_autocast_and_the_rest_is_the_models():
    model, seen = model_of(), []
    for stack in (model.encoder, model.decoder):
        up = stack.blocks[0].feed_forward.part.up
        up.register_forward_hook(lambda _, args, out: seen.append(out.dtype))
    wrapped = Autocast(model)
    state = wrapped.start(Tokens.of([[5, 6], [7]]))
    ids = torch.tensor([3, 4])
    wrapped.extend(Tokens(ids, state.next_layout([1, 1])), state)
    assert seen == [torch.bfloat16] * 2
    assert wrapped.alignment_taps == model.alignment_taps


@needs_library
def test_weights_that_were_changed_are_read_again():
    inference = Inference(model := model_of())
    before, hidden = inference.ready(), torch.randn(3, 14)
    logits = before.heads["token"](hidden)
    assert inference.ready() is before
    with torch.no_grad():
        model.heads["token"].weight.mul_(2)
    torch.testing.assert_close(inference.ready().heads["token"](hidden), 2 * logits)


@needs_library
def test_weights_that_were_assigned_are_read_again():
    """Tensors that were never changed all have version 0."""
    model, hidden = model_of(), torch.randn(3, 14)
    once = {name: 1 * value for name, value in model.state_dict().items()}
    model.load_state_dict(once, assign=True)
    inference = Inference(model)
    logits = inference.ready().heads["token"](hidden)
    model.load_state_dict({name: 2 * value for name, value in once.items()}, assign=True)
    torch.testing.assert_close(inference.ready().heads["token"](hidden), 2 * logits)


def halve_in_place(parameter):
    parameter.data.mul_(0.5)


def halve_by_assigning(parameter):
    parameter.data = parameter.data * 0.5


def halve_through_numpy(parameter):
    parameter.detach().numpy()[...] *= 0.5


@needs_library
@pytest.mark.parametrize("halve", [halve_in_place, halve_by_assigning, halve_through_numpy])
def test_weights_that_were_changed_without_a_new_version_are_read_again(halve):
    inference, hidden = Inference(model := model_of()), torch.randn(3, 14)
    before = inference.ready().heads["token"](hidden)
    for _ in range(2):
        halve(model.heads["token"].weight)
        before = before / 2
        torch.testing.assert_close(inference.ready().heads["token"](hidden), before)


@needs_library
def test_weights_without_versions_are_read():
    with torch.inference_mode():
        inference = Inference(model_of())
        assert inference.ready() is inference.ready()


@needs_library
def test_a_part_without_weights_that_was_replaced_is_read_again():
    inference = Inference(model := model_of())
    before = inference.ready()
    part = model.decoder.blocks[0].feed_forward.part
    part.activation = nn.GELU() if isinstance(part.activation, nn.ReLU) else nn.ReLU()
    assert inference.ready().engine is not before.engine
    part.activation = nn.Tanh()
    assert inference.ready() is model
    assert "unsupported activation: Tanh" in inference.description


@needs_library
def test_whoever_is_attached_to_a_tap_gets_the_model_itself_for_as_long():
    inference = Inference(model := model_of())
    (name,) = model.alignment_taps
    engine_of_before = inference.ready().engine
    with capture(model, {name: [1]}):
        assert inference.ready() is model
    assert inference.ready().engine is engine_of_before


@needs_library
def test_an_engine_is_made_when_nobody_is_attached_any_more():
    model = model_of()
    with capture(model, {model.alignment_taps[0]: None}):
        inference = Inference(model)
        assert "a tap is attached" in inference.description
        assert inference.ready() is model
        with pytest.raises(RequestError, match=r"int8 needs the native engine.*a tap is attached"):
            Inference(model, "int8")
    assert isinstance(inference.ready(), CompiledModel)


@needs_library
def test_int8_has_nothing_to_show_to_whoever_is_attached():
    inference = Inference(model := model_of(), "int8")
    with (
        capture(model, {model.alignment_taps[0]: None}),
        pytest.raises(RequestError, match=r"int8 does not support .*taps"),
    ):
        inference.ready()


@needs_library
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_is_called_for_as_long_as_it_is_there(kind):
    inference = Inference(model := model_of())
    engine_of_before = inference.ready().engine
    handle = getattr(model.decoder.blocks[0], kind)(lambda *_: None)
    assert inference.ready() is model
    hooked = Inference(model)
    assert "a module has a hook" in hooked.description
    with pytest.raises(RequestError, match=r"int8 needs the native engine.*hook"):
        Inference(model, "int8")
    handle.remove()
    assert inference.ready().engine is engine_of_before
    assert isinstance(hooked.ready(), CompiledModel)

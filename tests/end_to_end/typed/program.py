"""A program of a user."""

from collections.abc import Iterator

import heedful
from heedful.training.callbacks import Event, Updated, Validated


def rows() -> Iterator[dict[str, str]]:
    yield {"text": "a", "label": "b"}


def stop_early(event: Event) -> bool:
    return isinstance(event, Validated) and event.metrics["accuracy"] > 0.9


def show(event: Event) -> None:
    if isinstance(event, Updated):
        print(event.update, event.loss)


settings = heedful.recipe("my-own-labels", training={"max_updates": 3})
run = heedful.train(settings, "runs/x", data={"train": rows}, callbacks=[stop_early, show])
predictions = run.predict(["a", "b"])
labels: list[str] = [prediction.text for prediction in predictions]
probability: float = predictions[0].label_probabilities()["b"]
score: float = run.evaluate("valid", limit=3)["accuracy"].value
explanation = run.explain("a", layers=[0])
shape: tuple[int, ...] = explanation["x"].shape
explanation.save("page.html")
for piece in run.stream("so long"):
    print(piece.upper())
n: int = sum(parameter.numel() for parameter in run.model.parameters())
heedful.export(heedful.load("runs/x"), to="bert").exists()
print(heedful.describe(heedful.build("transformer-base", vocab_size=100)))
print(run.processor, run.recipe.training.max_updates)

"""Mistakes that a type checker finds, each in a line of its own; the comment is what must be reported."""

import heedful

run = heedful.load("runs/x")
a: str = run.evaluate("valid")["accuracy"].value  # error
b: int = run.predict(["a"])  # error
run.predict(["a"], beam="five")  # error
run.explain("a", layer=[0])  # error
run.model.frobnicate_all()  # error
c: str = heedful.build("transformer-base", vocab_size=100)  # error
heedful.train("my-own-labels", callbacks=[1])  # error
heedful.export(run)  # error
print(run.recipe.training.max_updats)  # error

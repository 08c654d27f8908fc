"""A module that fails when its framework is used, not when it is imported."""


def __getattr__(name: str) -> object:
    if name == "Job":
        raise RuntimeError("no GPU")
    raise AttributeError(name)

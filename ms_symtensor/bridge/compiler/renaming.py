"""Names inside a block that MindSpore compiled once and calls several times (`@lazy_inline`)."""

from dataclasses import dataclass

from ms_symtensor.tensor.graph import Attribute


@dataclass(frozen=True)
class Renaming:
    """From the names of the block that MindSpore compiled to those of the one that is called: layers.0 to layers.7."""

    parent: tuple[str, ...] = ()
    old: str = ""
    new: str = ""

    @classmethod
    def between(cls, formal: str, actual: str) -> "Renaming | None":
        """The renaming that makes parameter name `formal` into `actual`, None if they differ in more than one place."""
        olds, news = formal.split("."), actual.split(".")
        places = [i for i, (old, new) in enumerate(zip(olds, news, strict=False)) if old != new]
        if len(olds) != len(news) or len(places) != 1:
            return None
        place = places[0]
        return cls(tuple(olds[:place]), olds[place], news[place])

    def full_name(self, name: str) -> str:
        """`Default/net-Net/layers-CellList/0-Block/MatMul-op0` for the block that is called."""
        parts = name.split("/")
        names = [part.split("-", 1)[0] for part in parts]
        wanted = [*self.parent, self.old]
        for start in range(len(parts) - len(wanted) + 1 if self.old else 0):
            if names[start : start + len(wanted)] == wanted:
                last = start + len(wanted) - 1
                parts[last] = self.new + parts[last][len(self.old) :]
                break
        return "/".join(parts)

    def attributes(self, attributes: dict[str, Attribute]) -> tuple[tuple[str, Attribute], ...]:
        """`attributes` with the parameter that a mirror belongs to renamed."""
        name = attributes.get("mirror_user_id")
        old = ".".join([*self.parent, self.old]) + "."
        if self.old and isinstance(name, str) and name.startswith(old):
            attributes = {**attributes, "mirror_user_id": ".".join([*self.parent, self.new]) + "." + name[len(old) :]}
        return tuple(attributes.items())

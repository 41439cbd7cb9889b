"""A line of the grammar at the shapes of one operator: the names of its tensors' dims."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.ops.grammar import NONE, Item, Line, Source, Tensor
from ms_symtensor.ops.signature import Combine, Dims, DimsOf, OpView, positive
from ms_symtensor.tensor.graph import TensorType

_COMBINE = {"+": Combine.SUM, "mean": Combine.MEAN, "max": Combine.MAX, "min": Combine.MIN, "prod": Combine.PROD}
_NO_DIM = Item(NONE)


def bound(line: Line, op: OpView, by_position: bool = False) -> tuple[dict[str, Any], DimsOf]:
    """`line` at the shapes of `op`: fields of its `Signature`; `by_position`: tensors stand for the operator's inputs by number.

    Errors: InputError where ranks or sizes do not fit the line, naming the operator, the tensor and both readings.
    """
    binding = _Binding(line, op, by_position)
    return binding.fields(), binding.dims_of


@dataclass
class _Binding:
    line: Line
    op: OpView
    by_position: bool
    lengths: dict[str, int] = field(default_factory=dict)
    positions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    full: dict[str, list[Item]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    exact: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    pairs: list[tuple[Tensor, TensorType, int, bool]] = field(default_factory=list)
    """Tensors of the line and of the operator, their number, and whether they are outputs."""

    def fields(self) -> dict[str, Any]:
        op, line = self.op, self.line
        left = self._matched(line.inputs, op.inputs, self.by_position)
        right = self._matched(line.outputs, op.outputs[: self._outputs()], False)
        self.pairs = [(t, k, i, False) for i, (t, k) in enumerate(zip(left, op.inputs, strict=True))]
        self.pairs += [(t, k, i, True) for i, (t, k) in enumerate(zip(right, op.outputs, strict=False))]
        self._solve_lengths()
        self._solve_words()
        self._solve_factors()
        dims = [self._named(*pair) for pair in self.pairs]
        inputs, outputs = tuple(dims[: len(left)]), tuple(dims[len(left) :])
        mesh = self._mesh()
        found: dict[str, Any] = {
            "inputs": inputs, "outputs": outputs, "sizes": self.sizes, "mesh": mesh, "fixed": frozenset(self.whole),
            "keeps_inputs": tuple(i for i, tensor in enumerate(left) if "@" in tensor.marks),
            "keeps_outputs": tuple(i for i, tensor in enumerate(right) if "@" in tensor.marks),
        }  # fmt: skip
        if line.has_no_gradient:
            found["differentiable"] = tuple(i for i, tensor in enumerate(left) if "~" not in tensor.marks)
        for i, tensor in enumerate(right):
            if "=" in tensor.marks:
                found["is_view"] = True
            if tensor.combine:
                kept = {d for dims in outputs for d in dims} - {*outputs[i]}
                found |= {
                    "combine": _COMBINE[tensor.combine],
                    "partial_output": i,
                    "inner": tuple(d for d in mesh if d in kept),
                }
        return found

    def _fail(self, why: str) -> InputError:
        return InputError(f"{self.op.name} ({self.op.type}): {why} the signature {self.line.text!r}")

    def _outputs(self) -> int:
        """How many outputs the line says something about: those behind are for nobody."""
        return len(self.op.outputs) if any("*" in t.marks for t in self.line.outputs) else len(self.line.outputs)

    def _matched(self, tensors: Sequence[Tensor], kinds: Sequence[TensorType], by_position: bool) -> Sequence[Tensor]:
        """The tensor of the line for each of `kinds`."""
        if len(tensors) == len(kinds) and not any("*" in t.marks or "?" in t.marks for t in tensors):
            return tensors
        if by_position and self.op.positions:
            return [tensors[p] for p in self.op.positions]
        if len(tensors) == 1 and not tensors[0].items and not kinds:
            return []  # nothing is one scalar, or no tensor at all
        spare = len(kinds) - sum(not {*t.marks} & {*"*?"} for t in tensors)
        found: list[Tensor] = []
        for tensor in tensors:
            times = 1
            if "*" in tensor.marks:
                times = max(0, spare)
            elif "?" in tensor.marks:
                times = min(1, max(0, spare))
            spare -= times if {*tensor.marks} & {*"*?"} else 0
            found += [tensor] * times
        if spare != 0:
            raise InputError(
                f"{self.op.name}: {len(self.op.inputs)} tensor inputs and {len(self.op.outputs)} outputs do not fit the"
                f" signature {self.line.text!r}"
            )
        return found

    # how many dims `...` stands for

    def _solve_lengths(self) -> None:
        prefixes = {i.name for t, *_ in self.pairs for i in t.items if i.is_dots and i.name != NONE}
        for name, sources in self.line.words.items():
            if name.endswith("..."):
                self.lengths[name[:-3]] = int(self._value(sources[0]) or 0)
        while left := prefixes - self.lengths.keys():
            found = {prefix: lengths for prefix in left if (lengths := self._candidates(prefix))}
            if not found:
                raise self._fail(f"how many dims {min(left)}... has cannot be told from")
            self.lengths |= {prefix: max(0, *lengths) for prefix, lengths in found.items()}

    def _candidates(self, prefix: str) -> list[int]:
        """What single tensors say of the number of dims of `prefix`."""
        found = []
        for tensor, kind, *_ in self.pairs:
            dots = [i for i, item in enumerate(tensor.items) if item.is_dots and item.name == prefix]
            others = {item.name for item in tensor.items if item.is_dots} - {prefix}
            if not dots or NONE in others or not others <= self.lengths.keys():
                continue
            between = tensor.items[dots[0] + 1 : dots[-1]]
            is_new = bool(between) and between[0].name in self.line.new
            if len(dots) > 1 and not (between and between[0].name in self.line.member_of):
                continue  # some are left out or replaced
            beside = [item for i, item in enumerate(tensor.items) if not dots[0] <= i <= dots[-1]]
            found.append(len(kind.shape) - is_new - self._count(beside))
        return found

    def _count(self, items: Sequence[Item]) -> int:
        """How many dims `items` are; a word among the dims of a prefix is one of these."""
        total, prefixes = 0, {item.name for item in items if item.is_dots}
        for prefix in prefixes:
            total += self.lengths.get(prefix, 0)
        for item in items:
            if not item.is_dots and self.line.member_of.get(item.name) not in prefixes:
                total += len(self.positions.get(item.name, (0,)))
        return total

    # what words mean

    def _solve_words(self) -> None:
        for word, prefix in self.line.member_of.items():
            for tensor, kind, *_ in self.pairs:
                names = [item.name for item in tensor.items]
                if word in names and prefix in names:
                    start = self._count(tensor.items[: names.index(prefix)])
                    rank = len(kind.shape)
                    places = [p for source in self.line.words[word] for p in self._places(source, rank)]
                    self.positions[word] = tuple(sorted(p - start for p in places))
                    break

    def _value(self, source: Source) -> Any:
        number = len(self.op.arguments) if source.number is None else source.number  # an attribute alone
        value = self.op.argument(number, source.attribute)
        if value is None and source.default:
            return source.default[0] if len(source.default) == 1 else source.default
        return value

    def _places(self, source: Source, rank: int) -> tuple[int, ...]:
        """The positions that `source` says, of a tensor with `rank` dims."""
        inputs, outputs = self.op.inputs, self.op.outputs
        match source.kind:
            case "last":
                return tuple(range(rank - len(inputs[source.default[0]].shape), rank))
            case "count":
                value = self._value(source)
                return tuple(range(rank - (len(value) if isinstance(value, tuple) else 1), rank))
            case "places":
                return tuple(range(inputs[source.default[0]].shape[-1]))
            case "unlike":
                shape, target = inputs[0].shape, outputs[0].shape
                return tuple(
                    i for i, (n, m) in enumerate(zip(shape, target[len(target) - rank :], strict=True)) if n != m
                )
            case "ones":
                if self._value(source) in (None, ()):
                    return tuple(i for i, n in enumerate(inputs[0].shape) if n == 1)
                return positive(self._value(source), rank)
            case "from":
                value = self._value(source) if source.attribute else source.default[0]
                return tuple(range(positive(value, rank)[0], rank))
            case _:
                return positive(self._value(source) if source.attribute else source.default, rank)

    def _solve_factors(self) -> None:
        """The sizes of the dims in compounds, as far as attributes and tensors tell."""
        for word, sources in self.line.words.items():
            if sources[0].kind == "size":
                self.known[word] = int(self._value(sources[0]))
        compounds = [
            (item, size)
            for tensor, kind, *_ in self.pairs
            if len(tensor.items) == len(kind.shape)
            for item, size in zip(tensor.items, kind.shape, strict=True)
            if item.factors and "%" not in item.marks
        ]
        for item, size in compounds:
            unknown = [name for name in (item.name, *item.factors) if name not in self.known]
            if len(unknown) == 1:
                self.known[unknown[0]] = size // math.prod(self.known.get(n, 1) for n in (item.name, *item.factors))

    # names

    def _full(self, prefix: str) -> list[Item]:
        """The dims of a prefix: broadcast, as everywhere."""
        if prefix not in self.full:
            self.full[prefix] = [Item(f"{prefix}{i}", "?") for i in range(self.lengths[prefix])]
        return self.full[prefix]

    def _expanded(self, tensor: Tensor, kind: TensorType, number: int, is_output: bool) -> list[Item]:
        """One item per dim of a tensor."""
        rank = len(kind.shape)
        found: list[Item | None] = []
        items, i = self._in_order(tensor), 0
        while i < len(items):
            item = items[i]
            if not item.is_dots:
                found += self._of_name(item)
                i += 1
                continue
            if item.name == NONE:
                found.append(None)
                i += 1
                continue
            last = max(j for j, other in enumerate(items) if other.is_dots and other.name == item.name)
            run = self._full(item.name)
            if item.marks:
                run = [_with(one, item.marks) for one in run]
            if last > i:
                run = self._replaced(
                    run, item.name, items[i + 1 : last], rank - len(found) - self._count(items[last + 1 :])
                )
            elif not is_output or "?" in item.marks:
                run = run[max(0, len(run) - max(0, rank - self._beside(items, i))) :]
            found += run
            i = last + 1
        return self._filled(found, kind, number, is_output)

    def _beside(self, items: Sequence[Item], position: int) -> int:
        return self._count([other for j, other in enumerate(items) if j != position])

    def _of_name(self, item: Item) -> list[Item | None]:
        if item.name in self.positions and item.name not in self.line.new:
            prefix = self.line.member_of[item.name]
            return [Item(f"{prefix}{p}", item.marks) for p in self.positions[item.name]]
        return [item]

    def _replaced(self, run: list[Item], prefix: str, between: Sequence[Item], room: int) -> list[Item]:
        """`run` with what stands `between` its halves in the place of the dims of its word."""
        word = next(w for w, p in self.line.member_of.items() if p == prefix)
        positions = self.positions[word]
        if word in self.line.new:
            return [*run[: positions[0]], *between, *run[positions[0] :]]
        if between and between[0].name == word:
            return [_with(one, between[0].marks) if i in positions else one for i, one in enumerate(run)]
        left_out = not between or (between[0].name == NONE and "?" in between[0].marks and room < len(run))
        if left_out:
            return [one for i, one in enumerate(run) if i not in positions]
        if between[0].name == NONE:
            return [_NO_DIM if i in positions else one for i, one in enumerate(run)]
        instead = [one for item in between for one in (self._full(item.name) if item.is_dots else [item])]
        return [*run[: positions[0]], *instead, *run[positions[-1] + 1 :]]

    def _in_order(self, tensor: Tensor) -> list[Item]:
        """The items of a tensor; those of a bracket in the order that its word says."""
        found: list[Item] = []
        for item in tensor.items:
            if not item.order:
                found.append(item)
            elif item.is_dots:
                found += [self._full(item.name)[p] for p in self._order(item.order, self.lengths[item.name])]
            elif self._value(self.line.words[item.order][0]) and found and found[-1].bracket == item.bracket:
                found.insert(len(found) - 1, item)
            else:
                found.append(item)
        return found

    def _order(self, word: str, rank: int) -> tuple[int, ...]:
        sources = self.line.words[word]
        if len(sources) == 1:
            return self._places(sources[0], rank)
        order = [*range(rank)]
        a, b = (self._places(source, rank)[0] for source in sources)
        order[a], order[b] = order[b], order[a]
        return tuple(order)

    def _filled(self, found: list[Item | None], kind: TensorType, number: int, is_output: bool) -> list[Item]:
        """One item per dim: `1...` (None) takes what is left, `d?` at the beginning may be missing."""
        rank = len(kind.shape)
        if None in found:
            i = found.index(None)
            found[i : i + 1] = [_NO_DIM] * (rank - len(found) + 1)
        while len(found) > rank and found[0] is not None and "?" in found[0].marks:
            found = found[1:]
        if len(found) != rank:
            shape = f"{_called(number, is_output)} has shape {list(kind.shape)}"
            raise self._fail(f"{shape}, which is not what it reads in")
        return [item for item in found if item is not None]

    def _named(self, tensor: Tensor, kind: TensorType, number: int, is_output: bool) -> Dims:
        dims: list[str | None] = []
        for item, length in zip(self._expanded(tensor, kind, number, is_output), kind.shape, strict=True):
            name, marks = item.name, item.marks
            size = length // math.prod(self.known.get(n, 1) for n in item.factors) if item.factors else length
            if name == NONE or "." in marks or size == 1:
                dims.append(None)
                if name != NONE and not marks:
                    self._check(name, 1, number, is_output)
                continue
            dims.append(name)
            if "!" in marks:
                self.whole.add(name)
            elif not ("%" in marks or "*" in marks):
                self._check(name, size, number, is_output)
            if "*" not in marks:
                before = self.sizes.get(name, size)
                self.sizes[name] = size if before == size else math.gcd(before, size)
        return tuple(dims)

    def _check(self, name: str, size: int, number: int, is_output: bool) -> None:
        """InputError where a dim has another size than elsewhere and no mark allows it."""
        before, first, is_first_output = self.exact.setdefault(name, (size, number, is_output))
        if before != size:
            hint = f" (write {name}? where it is broadcast)" if 1 in (before, size) else ""
            where = _called(first, is_first_output)
            raise self._fail(f"dim {name!r} is {before} ({where}) and {size} ({_called(number, is_output)}){hint} in")

    # the dims that names stand for

    def dims_of(self, text: str) -> tuple[str, ...]:
        found: list[str] = []
        for name in text.split():
            if name.endswith("..."):
                prefix = name[:-3]
                found += [item.name for item in self._full(prefix or "d")] if (prefix or "d") in self.lengths else []
            elif name in self.positions and name not in self.line.new:
                found += [f"{self.line.member_of[name]}{p}" for p in self.positions[name]]
            else:
                found.append(name)
        return tuple(found)

    def _mesh(self) -> tuple[str, ...]:
        """All dims that take part, in the order of the line."""
        found: dict[str, None] = {}
        for tensor, *_ in self.pairs:
            for item in tensor.items:
                if item.is_dots and item.name != NONE:
                    found |= dict.fromkeys(one.name for one in self._full(item.name))
                else:
                    found[item.name] = None
        return tuple(name for name in found if name in self.sizes)


def _called(number: int, is_output: bool) -> str:
    return f"{'output' if is_output else 'input'} {number}"


def _with(item: Item, marks: str) -> Item:
    return Item(item.name, item.marks + marks)

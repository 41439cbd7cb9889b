"""Your own runs of plans, as `symtensor compare … --rows` writes them: a plan's folder and what was measured."""

from ms_symtensor.cost.flops import model_flops
from ms_symtensor.cost.plan_price import plan_bill
from ms_symtensor.cost.runtime import runtime_of
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.program.meanings import meanings
from ms_symtensor.strategy import folder as folders
from ms_symtensor.strategy.as_run import as_run_by
from ms_symtensor.strategy.file import check, graph_in, plan_in
from ms_symtensor.validation.configuration import PlannedRun
from ms_symtensor.validation.dataset import Case, Form, Measurement, UnusableRowError
from ms_symtensor.validation.table import Row

COLUMNS = ("plan", "step_time_s", "peak_memory_B", "run")


def case(row: Row) -> Case:
    """The plan's programs, as they are priced for it. Its folder is found from that of the table."""
    try:
        folder = folders.read(row.folder / row.text("plan"))
        plan, graph = plan_in(folder), graph_in(folder)
        if graph is None:
            raise InputError(f"{folder.file.parent} holds no graph.json, on which its price stands: plan again")
        check(plan, graph)
    except InputError as error:
        raise row.malformed("plan", f"is no plan: {error}") from error
    runtime, known = runtime_of(plan.runtime, plan.hide), meanings(graph)
    try:
        bill = plan_bill(graph, as_run_by(plan, graph, runtime), plan.pipeline, known, fuses=runtime.fuses)
    except SymTensorError as error:
        raise UnusableRowError(str(error)) from error
    tokens, flops = plan.global_batch_size * plan.seq_length, plan.micro_batch_num * model_flops(graph, known)
    run = PlannedRun(bill, runtime, flops, plan.device_num, tokens)
    step_s, peak_B = row.optional_number("step_time_s"), row.optional_number("peak_memory_B")
    if not (step_s or peak_B):
        raise UnusableRowError("neither a step nor memory was measured")
    return Case(row.line, f"{plan.model} on {plan.device_num}", run, Measurement(step_s or None, peak_B or None))


FORM = Form("own_runs", COLUMNS, case)

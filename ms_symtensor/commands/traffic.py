"""`symtensor traffic`: who sends how much to whom, over which links, and where nodes should stand."""

import argparse

from ms_symtensor.commands import options

TEXT = "bytes between every two ranks, load of links, placement of nodes, and a rank table"
EXAMPLES = (
    "symtensor traffic plan/llama2_7b",
    "symtensor traffic plan/llama2_70b --topology leaf=32,oversubscription=2 --json",
    "symtensor traffic plan/llama2_70b --rank-order",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("directory", metavar="DIR", type=options.path, help="a plan's directory")
    command.add_argument(
        "--topology",
        metavar="leaf=RANKS,oversubscription=RATIO",
        help="leaf switches of the outermost level: devices under each, and ports to uplinks (2: half as many)",
    )
    command.add_argument(
        "--servers",
        type=options.path,
        metavar="FILE",
        help="addresses for the rank table: a line for each server, leaf by leaf, its own and those of its devices",
    )
    command.add_argument(
        "--rank-order",
        action="store_true",
        help="search which of stages and mesh axes get which links; the rank table puts the ranks there",
    )
    options.add_out(command, " (default: the plan's folder)")
    options.add_folder(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    import json

    from ms_symtensor.commands.shared import plan_and_graph, show_found
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.traffic_report import links_csv, pairs_csv, traffic_json, traffic_text
    from ms_symtensor.strategy.folder import LINKS_FILE, PAIRS_FILE, RANK_TABLE_FILE, TRAFFIC_FILE
    from ms_symtensor.traffic.fabric import leaves_of
    from ms_symtensor.traffic.plan_traffic import plan_traffic, server_num
    from ms_symtensor.traffic.rank_order import order_of
    from ms_symtensor.traffic.rank_table import example_servers, rank_table, servers_of

    folder, plan, graph = plan_and_graph(chosen, "its traffic stands")
    leaves = None if chosen.topology is None else leaves_of(chosen.topology, plan.planned_for)
    with progress() as step:
        step("programs")
        programs = programs_of(plan, graph)
        step("traffic")
        order = order_of(plan, graph, programs) if chosen.rank_order else None
        positions = None if order is None else order.positions
        found = plan_traffic(plan, programs, leaves, positions)
    number = server_num(found.device_num, found.node_size)
    servers = (
        example_servers(number, found.node_size)
        if chosen.servers is None
        else servers_of(chosen.servers, number, found.node_size)
    )
    out = chosen.out or folder.file.parent
    data = traffic_json(plan, found, order)
    contents = {
        TRAFFIC_FILE: json.dumps(data, indent=1, allow_nan=False) + "\n",
        PAIRS_FILE: pairs_csv(found),
        LINKS_FILE: links_csv(found),
        RANK_TABLE_FILE: rank_table(servers, found.node_at, found.device_num, positions),
    }
    for name, content in contents.items():
        write_file(out / name, content)
    names = {name.partition(".")[0]: str(out / name) for name in contents}
    examples = "" if chosen.servers else f"\n  (addresses of {RANK_TABLE_FILE} are examples: give yours with --servers)"
    text = f"{traffic_text(plan, found, order)}\n\nWritten to {out}: {', '.join(contents)}{examples}"
    show_found(chosen, {**data, "files": names}, text)
    return 0

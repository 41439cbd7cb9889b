"""The search: `best.best_plan` finds the plan of a network, `plan.plan` that of one graph on one stage.

Its packages, each of which imports only those above it:

    constraints requests, limits, pins: what users ask for, in their terms, and what stands in the way of it
    folded      the network with one block in place of many
    space       meshes, step layouts, strategies: what there is to choose from
    tables      one stage as a sum of small tables, priced on many meshes at once, and its exact minimiser
    stages      step layouts: screened, divided into stages, and made plans that fit
    selections  what inside a block is worth recomputing
    certify     how near a plan is to the optimum

The files beside them put plans together: `best` goes through the cases of a request, `found` lists the step layouts and writes
the plan of the best one, with its price, `fastest` ranks layouts by what they promise and makes plans of them, `smallest` is the
last attempt where nothing fits. docs/explanation/search.md follows one request through all of them.
"""

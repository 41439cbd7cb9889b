"""The search: `plan.plan` is the way in for a network as it is, `best.best_plan` for one whose depth and batch can be chosen.

Its rooms, each of which imports only rooms above it:

    asked       requests, limits, pins: what users ask for, in their terms, and what stands in the way of it
    folded      the network with one block in place of many
    space       meshes, shapes of steps, strategies: what there is to choose from
    tables      one stage as a sum of small tables, priced on many meshes at once, and its exact minimiser
    one_stage   the best choice on one stage under a memory limit
    stages      pipeline stages and micro-batches: bounds of all shapes, and the best found
    selections  what inside a block is worth computing again
    bounds      how fast no plan is whose blocks are recomputed in part

The files beside them put plans together. docs/search.md follows one request through all of them.
"""

"""How fast no plan is whose blocks may make parts again."""

"""What there is to choose from: meshes, shapes of steps, strategies of operators, and what users leave of them."""

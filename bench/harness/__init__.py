"""What every benchmark needs: turns, machine, memory, work counted in FLOPs, tables."""

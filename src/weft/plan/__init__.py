"""What a run needs before it starts: FLOPs, memory per device, bytes per link, time, energy and
money, in closed formulas; and the simulation of many ranks, which checks them."""

"""The planner: job, snapshot and time in, plan out. Pure: no await, no clock, no client."""

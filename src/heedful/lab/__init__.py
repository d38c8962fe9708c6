"""The lectures' claims as experiments that measure, judge and draw."""

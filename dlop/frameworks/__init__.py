"""The kinds of jobs that dlop brings along: a file each. They know `dlop`'s public face, and not each other."""

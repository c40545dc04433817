"""The game without its networks: states, the rules and words of a life, recall, the director."""

"""Real films that show what the film pipeline does: what describes them is here, the films are downloaded."""

"""The acceptance table of a Toybox world: figures that the drawn truth allows and no real film would."""

"""The acceptance table of a Toybox world: measurements that need the true scenes."""

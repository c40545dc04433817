"""The Toybox: a miniature drawn world, with truth known for everything."""

"""AnimeGamer for ComfyUI. Nothing is imported before ComfyUI asks for the nodes, so this folder is also a plain one."""

WEB_DIRECTORY = "./js"


async def comfy_entrypoint():
    """ComfyUI's entry point. ComfyUI prints only the last line of an error, so the traceback is logged here."""
    import logging

    try:
        from .nodes import AnimeGamerExtension

        return AnimeGamerExtension()
    except Exception:
        logging.getLogger(__name__).exception("AnimeGamer could not be loaded")
        raise

"""Deinterlaces films (bwdif), also those that were encoded as progressive although their frames show two moments."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.filter import Graph
    from av.video.stream import VideoStream

PLACES, FRAMES = 8, 24  # of a film, that are searched for combs: places, and frames at each
LEAST, FRACTION = 24, 0.6  # combed frames: how many, and more than this fraction of those that show what they are
_KINDS = {  # each with the filters that let only such frames pass
    kind: (("idet", ""), ("metadata", f"mode=select:key=lavfi.idet.multiple.current_frame:value={kind}"))
    for kind in ("tff", "bff", "progressive")
}


def deinterlaced(frames: Iterable[VideoFrame | None], stream: VideoStream, order: str) -> Iterator[VideoFrame | None]:
    """The frames, from the first interlaced one on through bwdif, which leaves progressive frames as they are.

    order: see `field_order`; if it is known, no frame is taken for progressive.
    """
    graph: Graph | None = None
    shape: tuple[Any, ...] = ()
    for frame in frames:
        now = () if frame is None else (frame.width, frame.height, frame.format.name)
        if graph is not None and now != shape:
            yield from _filtered(graph, None)
            graph = None
        shape = now
        if frame is not None and graph is None and (order or frame.interlaced_frame):
            which = f"deint=all:parity={order}" if order else "deint=interlaced"
            graph = _graph(frame, stream, ("bwdif", f"mode=send_frame:{which}"))
        if frame is None or graph is None:
            yield frame
        else:
            yield from _filtered(graph, frame)
    if graph is not None:
        yield from _filtered(graph, None)


def field_order(container: InputContainer, stream: VideoStream, seconds: float) -> str:
    """Which field of the frames comes first, "tff" (the upper) or "bff", if most show two moments but none says so.

    "" for any other film. It decides by some frames at a few places of the film, which lasts `seconds`.
    """
    import av

    found, seen = Counter[str](), set[int | None]()
    for place in range(PLACES):
        graphs: dict[str, Graph] = {}
        time = (container.start_time or 0) / 1e6 + seconds * place / PLACES
        with contextlib.suppress(av.error.FFmpegError, OverflowError):  # damage is reported by those who read the film
            container.seek(round(time / stream.time_base), stream=stream)
            near = islice(container.decode(stream), PLACES * FRAMES)  # a short film may have few key frames
            for frame in islice((frame for frame in near if frame.pts not in seen), FRAMES):
                if frame.interlaced_frame:
                    return ""
                seen |= {frame.pts} - {None}
                graphs = graphs or {kind: _graph(frame, stream, *kind_of) for kind, kind_of in _KINDS.items()}
                for kind, graph in graphs.items():
                    found[kind] += sum(1 for _ in _filtered(graph, frame))
    count, order = max((found[order], order) for order in ("tff", "bff"))
    return order if count >= LEAST and count > FRACTION * found.total() else ""


def _graph(frame: VideoFrame, stream: VideoStream, *filters: tuple[str, str]) -> Graph:
    from av.filter import Graph

    graph = Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, name="in", time_base=stream.time_base
    )
    graph.link_nodes(source, *(graph.add(*one) for one in filters), graph.add("buffersink"))
    graph.configure()
    return graph


def _filtered(graph: Graph, frame: VideoFrame | None) -> Iterator[VideoFrame]:
    """The frames that are ready after this one, or those that are left if it is None."""
    import av

    graph.vpush(frame)
    with contextlib.suppress(av.error.BlockingIOError, av.error.EOFError):
        while True:
            yield graph.vpull()

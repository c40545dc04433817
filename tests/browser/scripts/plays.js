// Whether a video of the page shows the clip of this file name.
(name) =>
  [...document.querySelectorAll("video")].some((video) => {
    const source = video.currentSrc || video.src;
    return source.includes(encodeURIComponent(name)) && video.videoWidth > 0;
  })

// The clip on the stage moves, without a sound, again and again.
() => {
  const video = document.querySelector(".ag-screen video");
  return video && video.videoWidth > 0 && video.loop && video.muted && !video.paused && video.currentTime > 0;
}

// The colours (RGB) that a video, given as base64, shows in the middles of eighths of its width.
async (data) => {
  const video = Object.assign(document.createElement("video"), { muted: true, src: `data:video/mp4;base64,${data}` });
  await new Promise((done, failed) => {
    Object.assign(video, { onloadeddata: () => (video.currentTime = 0.01), onerror: failed });
    video.requestVideoFrameCallback(done); // "seeked" comes before there is a picture
  });
  const { videoWidth: width, videoHeight: height } = video;
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  context.drawImage(video, 0, 0);
  return [...Array(8).keys()].map((n) => [...context.getImageData((n + 0.5) * width / 8, height / 2, 1, 1).data].slice(0, 3));
}

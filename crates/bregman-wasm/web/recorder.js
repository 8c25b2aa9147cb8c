// The microphone: from a click to samples. It is open only while it records.

/** Seconds after which a recording stops by itself. */
export const LONGEST = 20;

// What getUserMedia's errors mean to the person before the screen.
const REASONS = {
  NotAllowedError:
    "The microphone is blocked for this page. Allow it in the site's settings, beside the address, " +
    "or drop an audio file instead.",
  NotFoundError: "There is no microphone. Connect one, or drop an audio file instead.",
  NotReadableError: "The microphone does not answer. Another program may be using it, or it is switched off.",
  SecurityError: "The browser's settings forbid the microphone. Drop an audio file instead.",
};
const INSECURE =
  "Browsers give the microphone only to pages from https or from this machine (localhost). " +
  "Drop an audio file instead.";

async function microphone() {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error(INSECURE);
  // What improves speech for people on the telephone changes the voice.
  const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  return navigator.mediaDevices.getUserMedia({ audio }).catch((error) => {
    throw new Error(REASONS[error.name] ?? `The microphone cannot be opened: ${error.message}.`, { cause: error });
  });
}

/**
 * Starts to record. `heard` is called with every block of samples and the seconds so far; `ended` when the recording
 * has reached LONGEST or the microphone is gone, with the reason. Returns the recording, which is to be stopped.
 */
export async function record({ heard, ended }) {
  const stream = await microphone();
  const context = new AudioContext();
  const release = () => {
    stream.getTracks().forEach((track) => track.stop());
    return context.close();
  };
  try {
    await context.audioWorklet.addModule(new URL("capture.js", import.meta.url));
    await context.resume();
  } catch (error) {
    await release();
    throw new Error(`The recording cannot start: ${error.message}.`, { cause: error });
  }
  const blocks = [];
  const capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, channelCount: 1 });
  capture.port.onmessage = ({ data }) => {
    blocks.push(data);
    const seconds = (blocks.length * data.length) / context.sampleRate;
    heard(data, seconds);
    if (seconds >= LONGEST) ended(`Stopped after ${LONGEST} seconds, which is enough.`);
  };
  stream.getTracks()[0].addEventListener("ended", () => ended("The microphone is gone."));
  const source = new MediaStreamAudioSourceNode(context, { mediaStream: stream });
  source.connect(capture);

  return {
    /** Closes the microphone; what it gave, and at which rate. */
    async stop() {
      capture.port.onmessage = null;
      const rate = context.sampleRate;
      await release();
      const samples = new Float32Array(blocks.reduce((length, block) => length + block.length, 0));
      blocks.reduce((at, block) => (samples.set(block, at), at + block.length), 0);
      return { samples, rate };
    },
  };
}

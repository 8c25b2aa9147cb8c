//! Decodes files to mono samples: WAV, FLAC, MP3, M4A/AAC and Ogg Vorbis, using `symphonia`.
//!
//! Guarantees for any input:
//! - channels are averaged, samples are in [−1, 1] for integer formats and as stored for float formats;
//! - the encoder's priming at the start is dropped if the container states its length: MP3, Ogg and M4A do, bare AAC
//!   does not;
//! - only the first stream of a chained Ogg file is read;
//! - a packet that does not decode is dropped and the rest is kept, so a truncated file yields what is left of it;
//! - a file without samples is [`Error::Empty`], NaN or infinity is [`Error::NotFinite`], more than [`MAX_SECONDS`] is
//!   [`Error::TooLong`]; [`Decoder`] reads longer files in blocks with the memory of one block;
//! - a panic inside a codec is caught and reported as [`Error::Decode`].

mod edits;
mod packet;

use std::io::{Cursor, Seek, SeekFrom};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bregman_base::files::open_regular;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_FLAC, CODEC_ID_PCM_S16LE};
use symphonia::core::errors::Error as SourceError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, SeekMode, SeekTo, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;

use crate::{Audio, Error, RATE, Result};
use packet::{Codec, PacketSamples};

/// [`decode_file`] and [`decode_bytes`] refuse anything longer, and at more than 16 kHz anything with more samples than
/// that has at 16 kHz: 0.9 GB, 80 minutes at 48 kHz. Some kilobytes of FLAC can stand for any number of equal samples.
pub const MAX_SECONDS: u32 = 4 * 3600;
/// More channels than any microphone array in use; a header that claims more is corrupt.
const MAX_CHANNELS: usize = 256;
/// Samples decoded before a seek position, so that the state of the codec is right (MP3's bit reservoir reaches back
/// furthest).
const PREROLL: u64 = 8192;
/// A stream with this many blocks without samples in a row is considered corrupt.
const MAX_EMPTY_BLOCKS: usize = 10_000;

/// The audio format stated in a file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Samples per second.
    pub rate: u32,
    /// Channels as stored.
    pub channels: usize,
    /// Samples per channel, if the container states it.
    pub frames: Option<u64>,
}

impl Probe {
    /// Length in seconds, if the container states it.
    pub fn seconds(&self) -> Option<f64> {
        self.frames.map(|frames| frames as f64 / f64::from(self.rate))
    }
}

/// Reads a file's header: rate, channels and, if stated, length. Nothing is decoded unless the header lacks rate or
/// channels.
pub fn probe(path: impl AsRef<Path>) -> Result<Probe> {
    Decoder::open(path.as_ref()).map(|decoder| decoder.probe())
}

/// Decodes a whole file to mono at its own rate.
pub fn decode_file(path: impl AsRef<Path>) -> Result<Audio> {
    let path = path.as_ref();
    Decoder::open(path)?.collect().map_err(|error| error.in_file(path))
}

/// Decodes a file held in memory; `extension` (such as `"flac"`, or `""`) is only a hint for the format.
pub fn decode_bytes(bytes: &[u8], extension: &str) -> Result<Audio> {
    Decoder::from_bytes(bytes, extension)?.collect()
}

/// Decodes samples `range` of a file to mono at its own rate, seeking close to the start. Returns fewer samples if the
/// file is shorter. For lossy formats the samples equal those of [`decode_file`] up to the codec's internal state (AAC:
/// its noise filling).
pub fn decode_range(path: impl AsRef<Path>, range: Range<u64>) -> Result<Audio> {
    let path = path.as_ref();
    Decoder::open(path)?.range(range).map_err(|error| error.in_file(path))
}

/// Reads a file block by block, mixed to mono.
pub struct Decoder<'a> {
    format: Box<dyn FormatReader + 'a>,
    codec: Codec,
    track: u32,
    probe: Probe,
    block: PacketSamples,
    /// Samples to decode before a seek position; `None` if timestamps do not count samples, so that seeking is
    /// impossible.
    preroll: Option<u64>,
    /// Decoded samples before the audio begins, and where it ends, which may be inside the last block.
    priming: u64,
    end: u64,
    /// After a seek, the position is taken from the next packet's timestamp.
    jumped: bool,
    /// A block was decoded to find rate and channels and has not been returned yet.
    pending: bool,
    ended: bool,
}

impl Decoder<'static> {
    /// Opens a file and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        open_regular(path)
            .map_err(|error| Error::Io(error.source))
            .and_then(|file| Self::new(Box::new(file), extension))
            .map_err(|error| error.in_file(path))
    }
}

impl<'a> Decoder<'a> {
    /// Reads the header of a file held in memory.
    pub fn from_bytes(bytes: &'a [u8], extension: &str) -> Result<Self> {
        Self::new(Box::new(Cursor::new(bytes)), extension)
    }

    fn new(source: Box<dyn MediaSource + 'a>, extension: &str) -> Result<Self> {
        let mut decoder = guarded(|| Self::read_header(source, extension))?;
        if decoder.probe.rate == 0 || decoder.probe.channels == 0 {
            decoder.pending = decoder.decode_block()?;
            if !decoder.pending {
                return Err(Error::Empty);
            }
        }
        Ok(decoder)
    }

    fn read_header(mut source: Box<dyn MediaSource + 'a>, extension: &str) -> Result<Self> {
        // If the file is corrupt, the decoder reports it.
        let priming = edits::priming(&mut source).ok().flatten();
        source.seek(SeekFrom::Start(0))?;
        let mut hint = Hint::new();
        hint.with_extension(extension);
        let stream = MediaSourceStream::new(source, Default::default());
        if stream.byte_len() == Some(0) {
            return Err(Error::Empty);
        }
        let format = symphonia::default::get_probe().probe(
            &hint,
            stream,
            FormatOptions::default(),
            MetadataOptions::default(),
        )?;
        let broken = |reason: &str| Error::Decode { reason: reason.into() };
        let track = format.default_track(TrackType::Audio).ok_or_else(|| broken("no audio track"))?;
        let Some(CodecParameters::Audio(parameters)) = &track.codec_params else {
            return Err(broken("unknown audio codec"));
        };
        let channels = parameters.channels.as_ref().map_or(0, |channels| channels.count());
        if channels > MAX_CHANNELS {
            return Err(Error::Decode { reason: format!("{channels} channels") });
        }
        let rate = parameters.sample_rate.unwrap_or(0);
        let seekable = track.time_base.is_some_and(|base| base.numer.get() == 1 && base.denom.get() == rate);
        let frames = track.num_frames.or(track.duration.filter(|_| seekable).map(|duration| duration.get()));
        let end = frames.filter(|_| format.format_info().short_name == "isomp4").unwrap_or(u64::MAX);
        let priming = priming.filter(|&priming| seekable && frames.is_some_and(|frames| priming < frames)).unwrap_or(0);
        let frames = frames.map(|frames| frames - priming);
        let lossless = [CODEC_ID_PCM_S16LE, CODEC_ID_FLAC].contains(&parameters.codec);
        let preroll = seekable.then_some(if lossless { 0 } else { PREROLL });
        let codec = Codec::new(parameters)?;
        let (track, probe) = (track.id, Probe { rate, channels, frames });
        Ok(Self {
            format,
            codec,
            track,
            probe,
            block: PacketSamples::default(),
            preroll,
            priming,
            end,
            jumped: false,
            pending: false,
            ended: false,
        })
    }

    /// The format stated in the header.
    pub fn probe(&self) -> Probe {
        self.probe
    }

    /// The next mono samples at the file's rate (see [`Decoder::probe`]), or `None` at the end.
    pub fn next_block(&mut self) -> Result<Option<&[f32]>> {
        if !std::mem::take(&mut self.pending) && !self.decode_block()? {
            return Ok(None);
        }
        Ok(Some(&self.block.mono))
    }

    /// All remaining samples, at most [`MAX_SECONDS`].
    pub fn collect(self) -> Result<Audio> {
        if self.probe.frames.is_some_and(|frames| frames > self.most()) {
            return Err(self.too_long());
        }
        self.range(0..u64::MAX)
    }

    /// Samples `range` of the file; see [`decode_range`].
    pub fn range(mut self, range: Range<u64>) -> Result<Audio> {
        // The stated length may be wrong: reserve at most a minute, then grow as needed.
        let expected = range
            .end
            .min(self.probe.frames.unwrap_or(0))
            .saturating_sub(range.start)
            .min(60 * u64::from(self.probe.rate));
        let mut samples = Vec::with_capacity(expected.min(1 << 22) as usize);
        let range = range.start.saturating_add(self.priming)..range.end.saturating_add(self.priming);
        self.jump_near(range.start);
        while let Some(block) = self.next_block()? {
            let length = block.len() as u64;
            let at = |index: u64, start: u64| index.saturating_sub(start).min(length) as usize;
            let (from, to) = (at(range.start, self.block.start), at(range.end, self.block.start));
            samples.extend_from_slice(&self.block.mono[from..to]);
            if samples.len() as u64 > self.most() {
                return Err(self.too_long());
            }
            if self.block.start.saturating_add(length) >= range.end {
                break;
            }
        }
        if samples.is_empty() {
            return Err(Error::Empty);
        }
        Ok(Audio { samples, rate: self.probe.rate })
    }

    /// Samples that are decoded in one piece: see [`MAX_SECONDS`].
    fn most(&self) -> u64 {
        u64::from(self.probe.rate.min(RATE)) * u64::from(MAX_SECONDS)
    }

    fn too_long(&self) -> Error {
        Error::TooLong { limit: (self.most() / u64::from(self.probe.rate.max(1))) as u32 }
    }

    /// Seeks to a position before `sample` if that saves decoding.
    fn jump_near(&mut self, sample: u64) {
        let Some(target) = self.preroll.and_then(|preroll| sample.checked_sub(preroll)).filter(|&target| target > 0)
        else {
            return;
        };
        let Ok(target) = i64::try_from(target) else { return };
        let to = SeekTo::Timestamp { ts: target.into(), track_id: self.track };
        let sought = guarded(|| self.format.seek(SeekMode::Accurate, to).map_err(Error::from));
        if sought.is_ok() {
            self.codec.reset();
            (self.jumped, self.pending) = (true, false);
        }
    }

    /// Decodes packets until one yields samples. False at the end of the stream.
    fn decode_block(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.block.start = self.block.start.saturating_add(self.block.mono.len() as u64);
        let outcome = guarded(|| self.decode_packets());
        self.ended = !matches!(outcome, Ok(true));
        if self.ended {
            self.block.mono.clear();
        }
        outcome
    }

    fn decode_packets(&mut self) -> Result<bool> {
        for _ in 0..MAX_EMPTY_BLOCKS {
            let packet = match self.format.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(false),
                // A truncated file ends here: the samples decoded so far are kept.
                Err(SourceError::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Ok(false);
                }
                // Another stream begins (chained Ogg).
                Err(SourceError::ResetRequired) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if packet.track_id != self.track {
                continue;
            }
            let Some((rate, channels)) = self.codec.decode(&packet, &mut self.block.interleaved)? else { continue };
            if rate == 0 || channels == 0 || channels > MAX_CHANNELS {
                return Err(Error::Decode { reason: format!("{rate} Hz, {channels} channels") });
            }
            if std::mem::take(&mut self.jumped) {
                self.block.start = packet.pts.get().max(0).unsigned_abs().saturating_add(packet.trim_start.get());
            }
            if self.block.start > 0 && rate != self.probe.rate {
                return Err(Error::Decode {
                    reason: format!("the rate changes from {} to {rate} Hz", self.probe.rate),
                });
            }
            (self.probe.rate, self.probe.channels) = (rate, channels);
            self.block.mix(channels)?;
            if self.block.start >= self.end {
                return Ok(false);
            }
            self.block.mono.truncate((self.end - self.block.start).min(1 << 32) as usize);
            let unheard = self.priming.saturating_sub(self.block.start).min(self.block.mono.len() as u64);
            self.block.mono.drain(..unheard as usize);
            self.block.start += unheard;
            if !self.block.mono.is_empty() {
                return Ok(true);
            }
        }
        Err(Error::Decode { reason: format!("{MAX_EMPTY_BLOCKS} packets in a row without audio") })
    }
}

/// Runs decoder code on untrusted bytes: a panic becomes an error.
fn guarded<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(Error::Decode { reason: "the codec panicked on malformed data".into() }))
}

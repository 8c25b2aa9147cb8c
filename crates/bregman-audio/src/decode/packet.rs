//! Decodes one packet to mono samples.

use symphonia::core::codecs::audio::well_known::CODEC_ID_PCM_S16LE;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as SourceError;
use symphonia::core::packet::Packet;

use crate::{Error, Result};

/// Decodes packets to interleaved samples.
pub(super) enum Codec {
    /// 16-bit PCM, the format of most corpora and of our shards: decoded here, because symphonia took two thirds of
    /// the time for it.
    Pcm16 {
        rate: u32,
        channels: usize,
    },
    Other(Box<dyn AudioDecoder>),
}

/// The samples of the last decoded packet.
#[derive(Default)]
pub(super) struct PacketSamples {
    pub(super) mono: Vec<f32>,
    pub(super) interleaved: Vec<f32>,
    /// Index of its first sample in the file, the encoder's priming included.
    pub(super) start: u64,
}

impl Codec {
    pub(super) fn new(parameters: &AudioCodecParameters) -> Result<Self> {
        let (rate, channels) =
            (parameters.sample_rate.unwrap_or(0), parameters.channels.as_ref().map_or(0, |channels| channels.count()));
        if parameters.codec == CODEC_ID_PCM_S16LE && rate > 0 && channels > 0 {
            return Ok(Self::Pcm16 { rate, channels });
        }
        Ok(Self::Other(
            symphonia::default::get_codecs().make_audio_decoder(parameters, &AudioDecoderOptions::default())?,
        ))
    }

    /// Resets the decoder after a seek.
    pub(super) fn reset(&mut self) {
        if let Self::Other(codec) = self {
            codec.reset();
        }
    }

    /// Rate and channels of the packet's samples; `None` if it has none or is broken.
    pub(super) fn decode(&mut self, packet: &Packet, interleaved: &mut Vec<f32>) -> Result<Option<(u32, usize)>> {
        match self {
            Self::Pcm16 { rate, channels } => {
                interleaved.clear();
                interleaved.extend(
                    packet.data.as_chunks().0.iter().map(|&bytes| f32::from(i16::from_le_bytes(bytes)) / 32768.0),
                );
                Ok((interleaved.len() >= *channels).then_some((*rate, *channels)))
            }
            Self::Other(codec) => match codec.decode(packet) {
                Ok(decoded) => {
                    decoded.copy_to_vec_interleaved(interleaved);
                    Ok((!decoded.is_empty()).then(|| (decoded.spec().rate(), decoded.num_planes())))
                }
                Err(SourceError::DecodeError(_) | SourceError::IoError(_)) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }
}

impl PacketSamples {
    pub(super) fn mix(&mut self, channels: usize) -> Result<()> {
        if channels == 1 {
            std::mem::swap(&mut self.mono, &mut self.interleaved);
        } else {
            let scale = 1.0 / channels as f32;
            self.mono.clear();
            self.mono.extend(self.interleaved.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() * scale));
        }
        // One check for the whole block; the position is searched only if it fails.
        const EXPONENT: u32 = 0x7f80_0000;
        if self.mono.iter().fold(0, |largest, x| largest.max(x.to_bits() & EXPONENT)) < EXPONENT {
            return Ok(());
        }
        let at = self.mono.iter().position(|x| !x.is_finite()).unwrap_or(0);
        Err(Error::NotFinite { index: self.start + at as u64 })
    }
}

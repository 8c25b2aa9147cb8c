//! TensorBoard event files, without TensorFlow: scalars only.
//!
//! A file is a sequence of TFRecords, each `length: u64 | masked CRC-32C of it | bytes | masked CRC-32C of them`,
//! little-endian, and each record is an `Event` in protocol-buffer encoding: `1: wall time (f64)`, `2: step (varint)`,
//! and either `3: "brain.Event:2"` (the first) or `5: Summary` with repeated `1: Value { 1: tag, 2: simple_value (f32)
//! }`.

use std::io::{Result, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use bregman_base::protobuf::Message;

/// Writes scalars to an event file.
pub struct TensorBoard<W: Write> {
    to: W,
}

impl<W: Write> TensorBoard<W> {
    /// A new file.
    ///
    /// # Errors
    /// What the writer says.
    pub fn begin(to: W) -> Result<Self> {
        let mut writer = Self { to };
        writer.record(&Message::default().double(1, now()).text(3, "brain.Event:2").finish())?;
        Ok(writer)
    }

    /// Goes on at the end of a file that [`TensorBoard::begin`] made.
    pub fn resume(to: W) -> Self {
        Self { to }
    }

    /// Scalars of one step.
    ///
    /// # Errors
    /// What the writer says.
    pub fn scalars(&mut self, step: u64, scalars: &[(String, f64)]) -> Result<()> {
        let summary = Message::default().each(scalars, |summary, (tag, value)| {
            summary.message(1, &Message::default().text(1, tag).float(2, *value as f32))
        });
        self.record(&Message::default().double(1, now()).int(2, step as i64).message(5, &summary).finish())
    }

    pub(super) fn get_ref(&self) -> &W {
        &self.to
    }

    fn record(&mut self, bytes: &[u8]) -> Result<()> {
        let length = (bytes.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(bytes.len() + 16);
        record.extend(length);
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(bytes);
        record.extend(masked_crc(bytes).to_le_bytes());
        self.to.write_all(&record)
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

/// CRC-32C (Castagnoli), rotated and offset as TFRecord wants it.
fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    });
    (!crc).rotate_right(15).wrapping_add(0xA282_EAD8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // RFC 3720, B.4: 32 bytes of zeros have CRC-32C 0x8A9136AA.
        assert_eq!(masked_crc(&[0; 32]), 0x8A91_36AAu32.rotate_right(15).wrapping_add(0xA282_EAD8));
    }

    #[test]
    fn a_file_is_a_version_record_and_one_record_per_step() {
        let mut bytes = Vec::new();
        let mut board = TensorBoard::begin(&mut bytes).unwrap();
        board.scalars(300, &[("a/b".to_owned(), 0.5)]).unwrap();
        let first = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert!(bytes[12..12 + first].ends_with(b"brain.Event:2"));
        let second = &bytes[12 + first + 4 + 12..];
        // wall time (9 bytes), step 300 = varint AC 02, then the summary with tag and value
        assert_eq!(second[9..12], [0x10, 0xAC, 0x02]);
        assert_eq!(second[12..26], [0x2A, 12, 0x0A, 10, 0x0A, 3, b'a', b'/', b'b', 0x15, 0, 0, 0, 0x3F]);
    }
}

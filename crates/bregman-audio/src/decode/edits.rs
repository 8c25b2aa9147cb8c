//! The edit list of an MP4 file (ISO/IEC 14496-12, `elst`): how many samples at the start are encoder priming, not
//! audio.
//!
//! `symphonia` does not apply it, ffmpeg does; the features of an M4A file should equal those of the WAV that ffmpeg
//! converts it to.

use std::io::{Read, Result, Seek, SeekFrom};
use std::ops::Range;

/// A file with more boxes on one level is considered corrupt.
const MOST_BOXES: usize = 4096;

/// A box: its type and the range of its contents.
type Mp4Box = ([u8; 4], Range<u64>);

/// Where the audio of the first audio track of an MP4 file begins, in the track's own time units; `None` for other
/// files and without an edit list.
pub(super) fn priming(file: &mut (impl Read + Seek + ?Sized)) -> Result<Option<u64>> {
    let start: [u8; 8] = read(file, 0)?;
    if &start[4..] != b"ftyp" {
        return Ok(None);
    }
    let length = file.seek(SeekFrom::End(0))?;
    let Some(movie) = find(file, 0..length, &[b"moov"])? else { return Ok(None) };
    for (kind, track) in boxes(file, movie)? {
        let handler = if &kind == b"trak" { find(file, track.clone(), &[b"mdia", b"hdlr"])? } else { None };
        // Version and flags, a zero, then the handler type.
        let Some(handler) = handler else { continue };
        if &read::<4>(file, handler.start + 8)? != b"soun" {
            continue;
        }
        let Some(edits) = find(file, track, &[b"edts", b"elst"])? else { return Ok(None) };
        return first_edit(file, edits);
    }
    Ok(None)
}

/// The media time of the first edit that is not empty.
fn first_edit(file: &mut (impl Read + Seek + ?Sized), edits: Range<u64>) -> Result<Option<u64>> {
    let wide = read::<1>(file, edits.start)? == [1];
    let count = u32::from_be_bytes(read(file, edits.start + 4)?);
    for index in 0..u64::from(count).min(16) {
        let media_time = if wide {
            i64::from_be_bytes(read(file, edits.start + 8 + 20 * index + 8)?)
        } else {
            i32::from_be_bytes(read(file, edits.start + 8 + 12 * index + 4)?).into()
        };
        // −1 marks an empty edit, which only delays the track.
        if let Ok(media_time) = u64::try_from(media_time) {
            return Ok(Some(media_time));
        }
    }
    Ok(None)
}

/// The contents of the first box at the end of `path`, from box to box inside `range`.
fn find(file: &mut (impl Read + Seek + ?Sized), range: Range<u64>, path: &[&[u8; 4]]) -> Result<Option<Range<u64>>> {
    let mut here = range;
    for &name in path {
        match boxes(file, here)?.into_iter().find(|(kind, _)| kind == name) {
            Some((_, inside)) => here = inside,
            None => return Ok(None),
        }
    }
    Ok(Some(here))
}

/// The consecutive boxes in `range`.
fn boxes(file: &mut (impl Read + Seek + ?Sized), range: Range<u64>) -> Result<Vec<Mp4Box>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at.saturating_add(8) <= range.end && found.len() < MOST_BOXES {
        let [size, kind] = [read::<4>(file, at)?, read::<4>(file, at + 4)?];
        let (header, size) = match u32::from_be_bytes(size) {
            0 => (8, range.end - at),
            1 => (16, u64::from_be_bytes(read(file, at + 8)?)),
            size => (8, size.into()),
        };
        let end = at.saturating_add(size);
        if size < header || end > range.end {
            break;
        }
        found.push((kind, at + header..end));
        at = end;
    }
    Ok(found)
}

fn read<const N: usize>(file: &mut (impl Read + Seek + ?Sized), at: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn block(kind: &[u8; 4], contents: &[u8]) -> Vec<u8> {
        [&(8 + contents.len() as u32).to_be_bytes()[..], kind, contents].concat()
    }

    fn movie(handler: &[u8; 4], edits: &[u8]) -> Vec<u8> {
        let handler = block(b"mdia", &block(b"hdlr", &[&[0; 8][..], handler].concat()));
        let track = block(b"trak", &[block(b"edts", &block(b"elst", edits)), handler].concat());
        [block(b"ftyp", b"M4A "), block(b"mdat", &[7; 30]), block(b"moov", &track)].concat()
    }

    fn narrow(entries: &[i32]) -> Vec<u8> {
        let entry = |&time: &i32| [&[0; 4][..], &time.to_be_bytes(), &[0; 4]].concat();
        [&[0; 4][..], &(entries.len() as u32).to_be_bytes(), &entries.iter().flat_map(entry).collect::<Vec<u8>>()]
            .concat()
    }

    #[test]
    fn the_first_non_empty_edit_counts() {
        let wide = [&[1, 0, 0, 0, 0, 0, 0, 1][..], &[0; 8], &2112i64.to_be_bytes(), &[0; 4]].concat();
        for (expected, bytes) in [
            (Some(1024), movie(b"soun", &narrow(&[1024]))),
            (Some(1024), movie(b"soun", &narrow(&[-1, 1024, 5]))),
            (Some(2112), movie(b"soun", &wide)),
            (None, movie(b"soun", &narrow(&[-1]))),
            (None, movie(b"vide", &narrow(&[1024]))),
            (None, b"RIFF....WAVE".to_vec()),
        ] {
            assert_eq!(priming(&mut Cursor::new(&bytes)).unwrap(), expected);
        }
    }
}

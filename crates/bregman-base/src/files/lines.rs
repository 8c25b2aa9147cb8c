//! Lines of a file that anybody may have made.

use std::io::{self, ErrorKind, Read};

/// The most bytes of a line.
const MOST: usize = 1 << 20;

/// Reads text as it is, up to a line that is longer than 1 MB: what reads line by line holds no more of a file that is
/// no text at all.
#[derive(Debug)]
pub struct ShortLines<R> {
    reader: R,
    /// The number of the present line, and its bytes so far.
    line: u64,
    length: usize,
}

impl<R> ShortLines<R> {
    /// The text of this reader.
    pub fn new(reader: R) -> Self {
        Self { reader, line: 1, length: 0 }
    }
}

impl<R: Read> Read for ShortLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        for (at, piece) in buffer[..read].split(|&byte| byte == b'\n').enumerate() {
            if at > 0 {
                (self.line, self.length) = (self.line + 1, 0);
            }
            self.length += piece.len();
            if self.length > MOST {
                let message = format!("line {} is longer than 1 MB: is this a text file?", self.line);
                return Err(io::Error::new(ErrorKind::InvalidInput, message));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "reads megabytes")]
    fn lines_up_to_the_limit_pass_and_a_longer_one_is_refused_by_its_number() {
        let line = |length: usize| [vec![b'x'; length], vec![b'\n']].concat();
        let read = |text: &[u8], piece: usize| {
            let mut lines = ShortLines::new(text);
            let (mut out, mut buffer) = (Vec::new(), vec![0; piece]);
            loop {
                match lines.read(&mut buffer) {
                    Ok(0) => return Ok(out),
                    Ok(read) => out.extend_from_slice(&buffer[..read]),
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        let most = [line(0), line(MOST), line(3), line(MOST)].concat();
        let more = [line(7), line(MOST + 1)].concat();
        // in pieces smaller and larger than a line
        for piece in [1 << 12, (1 << 16) - 1, 3 << 20] {
            assert!(read(&most, piece).unwrap() == most);
            let message = read(&more, piece).unwrap_err();
            assert!(message.contains("line 2 is longer than 1 MB"), "{message}");
        }
    }
}

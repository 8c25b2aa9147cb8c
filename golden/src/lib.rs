//! Reads the reference numbers: `<name>.safetensors` with tensors, `<name>.json` with settings.
//!
//! The folder is this one unless `GOLDEN_DIR` names another. Tests take case names, shapes and settings from the files
//! they find, so that another set tests the same code on other cases. What another set lacks, such as the files of
//! SpeechBrain and pyannote, which only `tools/golden` makes, is read from this folder. For tests only: everything here
//! panics with the file's name if something is missing.

use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// The folder with the golden files.
fn dir() -> PathBuf {
    std::env::var_os("GOLDEN_DIR").map_or_else(|| own(""), PathBuf::from)
}

/// A file of this folder, whatever `GOLDEN_DIR` says: for tests that need some network, not its numbers.
pub fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A golden file.
pub fn file(name: &str) -> PathBuf {
    let path = dir().join(name);
    if path.exists() { path } else { own(name) }
}

/// The models of the folder: names that have `<name>_expected.safetensors` beside `<name>.safetensors`.
pub fn models() -> Vec<String> {
    let dir = dir();
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let model = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix("_expected.safetensors")?;
        dir.join(format!("{name}.safetensors")).exists().then(|| name.to_owned())
    };
    let mut names: Vec<String> = entries.filter_map(|entry| model(entry.ok()?.path())).collect();
    assert!(!names.is_empty(), "no model in {}", dir.display());
    names.sort();
    names
}

/// The settings of a case.
pub fn json(name: &str) -> Value {
    let path = file(&format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The tensors of a case.
pub struct Tensors {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Tensors {
    /// Reads `<name>.safetensors`.
    pub fn load(name: &str) -> Self {
        Self::open(&file(&format!("{name}.safetensors")))
    }

    /// Reads a file of another folder.
    pub fn open(path: &Path) -> Self {
        let path = path.to_owned();
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { path, bytes }
    }

    /// All tensor names, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.parsed().names().into_iter().map(String::from).collect();
        names.sort();
        names
    }

    /// Whether the tensor exists.
    pub fn has(&self, name: &str) -> bool {
        self.parsed().tensor(name).is_ok()
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.view(name, |shape, _, _| shape.to_vec())
    }

    /// Values of any stored type as `f64`; exact for all but i64 beyond 2⁵³.
    pub fn f64(&self, name: &str) -> Vec<f64> {
        self.view(name, |_, dtype, bytes| match dtype {
            Dtype::F64 => values(bytes, f64::from_le_bytes),
            Dtype::F32 => values(bytes, |b| f64::from(f32::from_le_bytes(b))),
            Dtype::F16 => values(bytes, |b| half(u16::from_le_bytes(b))),
            Dtype::I64 => values(bytes, |b| i64::from_le_bytes(b) as f64),
            Dtype::I16 => values(bytes, |b| f64::from(i16::from_le_bytes(b))),
            Dtype::U8 => bytes.iter().map(|&b| f64::from(b)).collect(),
            other => {
                panic!("{}: `{name}` is stored as {other:?}, which this reader does not support", self.path.display())
            }
        })
    }

    /// Values as `f32`.
    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.f64(name).into_iter().map(|x| x as f32).collect()
    }

    /// Values as whole numbers.
    pub fn i64(&self, name: &str) -> Vec<i64> {
        self.f64(name).into_iter().map(|x| x as i64).collect()
    }

    fn parsed(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()))
    }

    fn view<T>(&self, name: &str, read: impl FnOnce(&[usize], Dtype, &[u8]) -> T) -> T {
        let parsed = self.parsed();
        let view = parsed.tensor(name).unwrap_or_else(|e| panic!("{}: `{name}`: {e}", self.path.display()));
        read(view.shape(), view.dtype(), view.data())
    }
}

fn values<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|&bytes| read(bytes)).collect()
}

/// IEEE half precision: sign, 5 bits of exponent, 10 of fraction.
fn half(bits: u16) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_exactly() {
        for (bits, value) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x3555, 0.333251953125), (0x0001, 2f64.powi(-24)), (0x7bff, 65504.0)]
        {
            assert_eq!(half(bits), value);
        }
    }
}

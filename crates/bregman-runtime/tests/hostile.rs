//! Model files that somebody altered and gave the checksum that they then need: an error, or a model that works, never
//! a panic and never all of the memory. (`files.rs` has those whose checksum tells.)

mod common;

use std::sync::LazyLock;

use bregman_runtime::{Error, Model, ModelFile, ValueFormat};
use proptest::prelude::*;
use serde_json::Value;

/// Where the header begins, behind magic, version, checksum and its own length.
const HEADER: usize = 24;

/// Small files of both networks in every encoding.
static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let resnet = || common::resnet([1, 1, 2, 1], 2, 8, 3);
    let file = |pair: common::Pair, format| pair.file.to_bytes(format).unwrap();
    let mut whole_numbers = common::random(common::ecapa(8, 8, 2, true), 0.98, 5);
    whole_numbers.file.calibrate_features(&[common::features(80, 8, 1)]).unwrap();
    vec![
        file(common::random(resnet(), 0.0, 1), ValueFormat::F32),
        file(common::random(resnet(), 0.5, 2), ValueFormat::F16),
        file(common::random(resnet(), 0.9, 3), ValueFormat::Int8),
        file(common::random(common::ecapa(8, 8, 2, true), 0.99, 4), ValueFormat::F16),
        file(whole_numbers, ValueFormat::Int8),
    ]
});

/// Gives altered bytes the checksum that they then need.
fn repair(bytes: &mut [u8]) {
    if let Some((head, rest)) = bytes.split_at_mut_checked(16) {
        head[12..].copy_from_slice(&crc32fast::hash(rest).to_le_bytes());
    }
}

/// The file with another header.
fn with_header(file: &[u8], edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let length = u64::from_le_bytes(file[16..HEADER].try_into().unwrap()) as usize;
    let (header, payload) = file[HEADER..].split_at(length);
    let mut value = serde_json::from_slice(header).unwrap();
    edit(&mut value);
    let header = serde_json::to_vec(&value).unwrap();
    let mut bytes = [&file[..16], &(header.len() as u64).to_le_bytes(), &header, payload].concat();
    repair(&mut bytes);
    bytes
}

/// Reads bytes in both ways; a model that comes out of it embeds.
fn read(bytes: &[u8]) -> Result<(), Error> {
    let whole = ModelFile::from_bytes(bytes).map(|_| ());
    let model = Model::from_bytes(bytes)?;
    whole.expect("one reader takes what the other refuses");
    let embedding = model
        .embed_features(&vec![0.5; 3 * model.architecture().features])
        .expect("three finite frames have an embedding");
    assert_eq!(embedding.len(), model.embedding_size());
    Ok(())
}

#[test]
fn a_file_cut_off_is_refused_even_with_a_right_checksum() {
    for file in FILES.iter() {
        read(file).unwrap();
        for length in (0..file.len()).step_by(1 + file.len() / 400).chain(file.len() - 20..file.len()) {
            let mut cut = file[..length].to_vec();
            repair(&mut cut);
            assert!(read(&cut).is_err(), "{length} of {} bytes", file.len());
        }
        let mut longer = file.clone();
        longer.push(0);
        repair(&mut longer);
        assert!(read(&longer).unwrap_err().to_string().contains("too many"));
    }
}

#[test]
fn another_front_end_or_layer_is_named() {
    let refused = |edit: &dyn Fn(&mut Value)| read(&with_header(&FILES[0], edit)).unwrap_err().to_string();
    let message = refused(&|header| header["front_end"]["front_end"]["kind"] = "mfcc".into());
    assert!(message.contains("mfcc"), "{message}");
    let message = refused(&|header| header["layers"][0]["name"] = "other".into());
    assert!(message.contains("other"), "{message}");
}

#[test]
fn a_small_file_cannot_ask_for_all_of_the_memory() {
    let huge = common::resnet([64; 4], 512, 80, 256);
    assert!(matches!(huge.check().map_err(Error::from), Err(Error::Architecture { field: "weights", .. })));
    common::ecapa(4096, 80, 192, true).check().unwrap();
}

/// A change of a file's bytes.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |at: usize| 16 + at % (bytes.len() - 16);
        match *self {
            Self::Set(at, byte) => {
                let at = place(at);
                bytes[at] = byte;
            }
            Self::Insert(at, byte) => bytes.insert(place(at), byte),
            Self::Remove(at, count) => {
                let at = place(at);
                let end = (at + count).min(bytes.len() - 1);
                bytes.drain(at..end.max(at));
            }
            Self::Repeat(at, count) => {
                let at = place(at);
                let piece = bytes[at..(at + count).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let anywhere = || any::<usize>();
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(b'9')];
    prop_oneof![
        4 => (anywhere(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (anywhere(), byte).prop_map(|(at, byte)| Change::Insert(at, byte)),
        1 => (anywhere(), 1usize..64).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (anywhere(), 1usize..64).prop_map(|(at, count)| Change::Repeat(at, count)),
    ]
}

/// The leaves of a JSON value, in order.
fn leaves<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| leaves(value, found)),
        Value::Array(list) => list.iter_mut().for_each(|value| leaves(value, found)),
        leaf => found.push(leaf),
    }
}

fn leaf() -> impl Strategy<Value = Value> {
    let number = prop_oneof![0u64..70, 0u64..5000, Just(u64::MAX), Just(1 << 32), Just(1 << 63), any::<u64>()];
    prop_oneof![
        6 => number.prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => (-1e30..1e30f64).prop_map(Value::from),
        1 => prop::sample::select(vec!["dense", "bitmap", "f32", "f16", "int8", "ecapa", ""]).prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

proptest! {
    #[test]
    fn altered_bytes_with_a_right_checksum_never_panic(
        file in 0usize..4,
        changes in prop::collection::vec(change(), 1..8),
    ) {
        let mut bytes = FILES[file].clone();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        repair(&mut bytes);
        let _ = read(&bytes);
    }

    #[test]
    fn altered_headers_never_panic(file in 0usize..4, edits in prop::collection::vec((any::<usize>(), leaf()), 1..4)) {
        let bytes = with_header(&FILES[file], |header| {
            let mut found = Vec::new();
            leaves(header, &mut found);
            let count = found.len();
            for (at, value) in edits {
                *found[at % count] = value;
            }
        });
        let _ = read(&bytes);
    }
}

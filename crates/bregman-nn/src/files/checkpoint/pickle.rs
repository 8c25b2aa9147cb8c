//! A pickle reader that can only build what a `state_dict` needs: dictionaries, numbers, strings and tensors.
//!
//! A pickle is a program for a stack machine that can call any function by name. This one knows three: `OrderedDict`,
//! `torch._utils._rebuild_tensor_v2` and `_rebuild_parameter`. What others would make is only a [`Value::Foreign`] with
//! a name, such as the settings beside the weights in a checkpoint of Lightning; nothing is ever executed.

use std::collections::HashMap;
use std::rc::Rc;

use super::{Array, Format, Values};

type Result<T> = std::result::Result<T, String>;

/// More than any `state_dict` has, most of which is names.
const MOST_BYTES: usize = 16 << 20;
/// A tensor takes some 40 of them: enough for 26 000. Each may keep a value of a hundred bytes, of which an instruction
/// of one byte says nothing.
const MOST_INSTRUCTIONS: usize = 1 << 20;
/// Of tuples and dictionaries. A `state_dict` has three, and dropping a value takes stack for each.
const DEEPEST: usize = 32;
/// PyTorch's own limit.
const MOST_DIMENSIONS: usize = 64;

/// Values that the stack machine handles. What a pickle may use twice is shared, so that none can multiply itself.
#[derive(Clone)]
pub(super) enum Value {
    Nothing,
    Int(i64),
    Text(Rc<str>),
    Tuple(Rc<Nested<Value>>),
    Dict(Box<Nested<(Value, Value)>>),
    Function(Function),
    StorageType(Format),
    Storage {
        format: Format,
        key: Rc<str>,
    },
    Tensor(Rc<TensorRef>),
    /// Something that is no part of a `state_dict`, by its name.
    Foreign(Rc<str>),
}

/// The values of a tuple or dictionary.
#[derive(Clone)]
pub(super) struct Nested<T> {
    /// How many of them lie in each other, this one included.
    depth: usize,
    pub(super) items: Vec<T>,
}

/// What may be called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Dict,
    Tensor,
    Parameter,
}

/// A tensor as the pickle describes it: a strided view of a storage in another member of the archive.
#[derive(Clone, Debug)]
pub(super) struct TensorRef {
    pub(super) format: Format,
    pub(super) key: Rc<str>,
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl Value {
    fn tuple(items: Vec<Self>) -> Result<Self> {
        let depth = items.iter().map(Self::depth).max().unwrap_or(0) + 1;
        check_depth(depth)?;
        Ok(Self::Tuple(Rc::new(Nested { depth, items })))
    }

    fn dict() -> Self {
        Self::Dict(Box::new(Nested { depth: 1, items: Vec::new() }))
    }

    fn depth(&self) -> usize {
        match self {
            Self::Tuple(tuple) => tuple.depth,
            Self::Dict(dict) => dict.depth,
            _ => 0,
        }
    }

    fn sizes(&self) -> Result<Vec<usize>> {
        match self {
            Self::Tuple(tuple) if tuple.items.len() <= MOST_DIMENSIONS => tuple.items.iter().map(Self::index).collect(),
            Self::Tuple(tuple) => Err(format!("pickle: a tensor of {} dimensions", tuple.items.len())),
            _ => Err("pickle: expected a tuple of sizes".to_owned()),
        }
    }

    fn index(&self) -> Result<usize> {
        match self {
            Self::Int(value) => usize::try_from(*value).map_err(|_| format!("pickle: negative size {value}")),
            _ => Err("pickle: a size is not a number".to_owned()),
        }
    }
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > DEEPEST {
        return Err(format!("pickle: tuples or dictionaries nested more than {DEEPEST} deep, which no state_dict is"));
    }
    Ok(())
}

/// Runs the pickle and returns the value it makes.
pub(super) fn load(bytes: &[u8]) -> Result<Value> {
    if bytes.len() > MOST_BYTES {
        return Err(format!("pickle of {} MB: a state_dict's is smaller than 16", bytes.len() >> 20));
    }
    Machine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() }.run()
}

/// The program that makes an `OrderedDict` of these tensors, the values of each in a storage of its number.
pub(super) fn save<'a>(tensors: impl Iterator<Item = (&'a str, &'a Array)>) -> Vec<u8> {
    const NEW_DICT: &[u8] = b"ccollections\nOrderedDict\n)R";
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let int = |value: usize| [b"\x8a\x08", &(value as u64).to_le_bytes()[..]].concat(); // LONG1
    let tuple = |items: &[usize]| [b"(".to_vec(), items.iter().flat_map(|&item| int(item)).collect(), b"t".to_vec()];
    let mut program = [b"\x80\x02", NEW_DICT, b"("].concat();
    for (number, (name, Array { shape, values })) in tensors.enumerate() {
        let (storage, count): (&[u8], _) = match values {
            Values::F32(values) => (b"ctorch\nFloatStorage\n", values.len()),
            Values::I64(values) => (b"ctorch\nLongStorage\n", values.len()),
        };
        let mut strides: Vec<usize> = shape
            .iter()
            .rev()
            .scan(1, |step, side| {
                let stride = *step;
                *step *= side;
                Some(stride)
            })
            .collect();
        strides.reverse();
        program.extend(text(name));
        program.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        program
            .extend([text("storage"), storage.to_vec(), text(&number.to_string()), text("cpu"), int(count)].concat());
        program.extend([b"tQ".to_vec(), int(0), tuple(shape).concat(), tuple(&strides).concat()].concat());
        program.extend([b"\x89", NEW_DICT, b"tR"].concat()); // without gradient and hooks
    }
    program.extend(b"u.");
    program
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<usize, Value>,
}

impl Machine<'_> {
    fn run(mut self) -> Result<Value> {
        for _ in 0..MOST_INSTRUCTIONS {
            let code = self.take(1)?[0];
            match code {
                0x80 => drop(self.take(1)?), // PROTO
                0x95 => drop(self.take(8)?), // FRAME
                b'.' => return self.pop(),
                b'N' => self.stack.push(Value::Nothing),
                b'G' => self.foreign(8, "a float")?,
                b'C' => {
                    let count = self.number::<1>()?;
                    self.foreign(count, "bytes")?;
                }
                b'B' => {
                    let count = self.number::<4>()?;
                    self.foreign(count, "bytes")?;
                }
                0x8f => self.foreign(0, "a set")?,
                0x81 => self.call()?, // NEWOBJ: a class instead of a function
                0x88 | 0x89 => self.stack.push(Value::Int(i64::from(code == 0x88))), // NEWTRUE, NEWFALSE
                b'K' => self.int::<1>()?,
                b'M' => self.int::<2>()?,
                b'J' => {
                    let value = i32::from_le_bytes(self.take(4)?.try_into().expect("four bytes"));
                    self.stack.push(Value::Int(i64::from(value)));
                }
                0x8a => self.long()?,
                b'X' => self.text::<4>()?,
                0x8c => self.text::<1>()?,
                b'(' => self.marks.push(self.stack.len()),
                b'}' => self.stack.push(Value::dict()),
                b')' | b']' => self.stack.push(Value::tuple(Vec::new())?),
                b't' => {
                    let items = self.since_mark()?;
                    self.stack.push(Value::tuple(items)?);
                }
                0x85..=0x87 => {
                    let start =
                        self.stack.len().checked_sub(usize::from(code - 0x84)).ok_or("pickle: stack is empty")?;
                    let items = self.stack.split_off(start);
                    self.stack.push(Value::tuple(items)?);
                }
                b'q' => self.keep::<1>()?,
                b'r' => self.keep::<4>()?,
                0x94 => self.keep_at(self.memo.len())?,
                b'h' => self.recall::<1>()?,
                b'j' => self.recall::<4>()?,
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.global(&module, &name)?;
                }
                0x93 => {
                    let (Value::Text(name), Value::Text(module)) = (self.pop()?, self.pop()?) else {
                        return Err("pickle: a function's name is not text".to_owned());
                    };
                    self.global(&module, &name)?;
                }
                b'Q' => self.storage()?,
                b'R' => self.call()?,
                b'b' => drop(self.pop()?), // BUILD: attributes such as `_metadata`, which we do not need
                b'a' => drop(self.pop()?), // APPEND, APPENDS, ADDITEMS: lists and sets hold no tensors of a network
                b'e' | 0x90 => drop(self.since_mark()?),
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.insert(vec![key, value])?;
                }
                b'u' => {
                    let items = self.since_mark()?;
                    self.insert(items)?;
                }
                other => return Err(format!("pickle: instruction 0x{other:02x} is not part of a state_dict")),
            }
        }
        Err(format!("pickle of more than {MOST_INSTRUCTIONS} instructions: a state_dict's has fewer"))
    }

    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len()).ok_or("pickle is cut off")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<usize> {
        Ok(self.take(N)?.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
    }

    fn line(&mut self) -> Result<String> {
        let len = self.bytes[self.at..].iter().position(|&byte| byte == b'\n').ok_or("pickle is cut off")?;
        let line = String::from_utf8_lossy(self.take(len)?).into_owned();
        self.at += 1;
        Ok(line)
    }

    fn pop(&mut self) -> Result<Value> {
        self.stack.pop().ok_or_else(|| "pickle: stack is empty".to_owned())
    }

    fn since_mark(&mut self) -> Result<Vec<Value>> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or("pickle: no mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn int<const N: usize>(&mut self) -> Result<()> {
        let value = self.number::<N>()?;
        self.stack.push(Value::Int(value as i64));
        Ok(())
    }

    fn long(&mut self) -> Result<()> {
        let len = self.number::<1>()?;
        if len > 8 {
            return Err("pickle: number too large".to_owned());
        }
        let bytes = self.take(len)?;
        let fill = if bytes.last().is_some_and(|&top| top >= 0x80) { 0xFF } else { 0 };
        let mut wide = [fill; 8];
        wide[..len].copy_from_slice(bytes);
        self.stack.push(Value::Int(i64::from_le_bytes(wide)));
        Ok(())
    }

    fn text<const N: usize>(&mut self) -> Result<()> {
        let len = self.number::<N>()?;
        let text = str::from_utf8(self.take(len)?).map_err(|_| "pickle: text is not UTF-8")?.into();
        self.stack.push(Value::Text(text));
        Ok(())
    }

    fn keep<const N: usize>(&mut self) -> Result<()> {
        let slot = self.number::<N>()?;
        self.keep_at(slot)
    }

    /// Remembers the top of the stack. A dictionary changes after it was remembered, so of one with items only that it
    /// was there.
    fn keep_at(&mut self, slot: usize) -> Result<()> {
        let kept = match self.stack.last().ok_or("pickle: stack is empty")? {
            Value::Dict(dict) if !dict.items.is_empty() => Value::Foreign("a dictionary that is used twice".into()),
            top => top.clone(),
        };
        self.memo.insert(slot, kept);
        Ok(())
    }

    fn recall<const N: usize>(&mut self) -> Result<()> {
        let slot = self.number::<N>()?;
        let value = self.memo.get(&slot).ok_or("pickle: refers to a value that was not kept")?.clone();
        self.stack.push(value);
        Ok(())
    }

    /// Something of `count` bytes that is passed over.
    fn foreign(&mut self, count: usize, name: &str) -> Result<()> {
        self.take(count)?;
        self.stack.push(Value::Foreign(name.into()));
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let value = match (module, name) {
            ("collections", "OrderedDict") => Value::Function(Function::Dict),
            ("torch._utils", "_rebuild_tensor_v2") => Value::Function(Function::Tensor),
            ("torch._utils", "_rebuild_parameter") => Value::Function(Function::Parameter),
            ("torch", "HalfStorage") => Value::StorageType(Format::F16),
            ("torch", "BFloat16Storage") => Value::StorageType(Format::BF16),
            ("torch", "FloatStorage") => Value::StorageType(Format::F32),
            ("torch", "DoubleStorage") => Value::StorageType(Format::F64),
            ("torch", "IntStorage") => Value::StorageType(Format::I32),
            ("torch", "LongStorage") => Value::StorageType(Format::I64),
            _ => Value::Foreign(format!("{module}.{name}").into()),
        };
        self.stack.push(value);
        Ok(())
    }

    /// `("storage", type, key, device, count)` names a member of the archive.
    fn storage(&mut self) -> Result<()> {
        let value = self.pop()?;
        let Value::Tuple(tuple) = &value else {
            return Err("pickle: a storage is not described by a tuple".to_owned());
        };
        let [Value::Text(kind), Value::StorageType(format), Value::Text(key), ..] = tuple.items.as_slice() else {
            return Err("pickle: unknown description of a storage".to_owned());
        };
        if &**kind != "storage" {
            return Err(format!("pickle: persistent object {kind} is not a storage"));
        }
        self.stack.push(Value::Storage { format: *format, key: key.clone() });
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        if let foreign @ Value::Foreign(_) = function {
            self.stack.push(foreign); // what it would make goes by its name
            return Ok(());
        }
        let (Value::Tuple(arguments), Value::Function(function)) = (arguments, function) else {
            return Err("pickle: calls something that is no function".to_owned());
        };
        let value = match (function, arguments.items.as_slice()) {
            (Function::Dict, []) => Value::dict(),
            (Function::Tensor, [Value::Storage { format, key }, offset, shape, strides, ..]) => {
                let (shape, strides) = (shape.sizes()?, strides.sizes()?);
                if shape.len() != strides.len() {
                    return Err("pickle: shape and strides of a tensor disagree".to_owned());
                }
                let (format, key, offset) = (*format, key.clone(), offset.index()?);
                Value::Tensor(Rc::new(TensorRef { format, key, offset, shape, strides }))
            }
            (Function::Parameter, [tensor @ Value::Tensor(_), ..]) => tensor.clone(),
            _ => return Err("pickle: unexpected arguments".to_owned()),
        };
        self.stack.push(value);
        Ok(())
    }

    fn insert(&mut self, items: Vec<Value>) -> Result<()> {
        let dict = match self.stack.last_mut() {
            Some(Value::Dict(dict)) => dict,
            Some(Value::Foreign(_)) => return Ok(()),
            _ => return Err("pickle: sets an item outside of a dictionary".to_owned()),
        };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            dict.depth = dict.depth.max(1 + key.depth().max(value.depth()));
            check_depth(dict.depth)?;
            dict.items.push((key, value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_foreign_function_would_make_is_a_name() {
        let attack = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R.";
        assert!(matches!(load(attack), Ok(Value::Foreign(name)) if &*name == "os.system"));
    }

    #[test]
    fn no_truncation_of_a_pickle_panics() {
        let whole = b"\x80\x02ccollections\nOrderedDict\n)Rq\x00X\x01\x00\x00\x00aK\x07s}b.";
        assert!(matches!(load(whole), Ok(Value::Dict(dict)) if dict.items.len() == 1));
        (0..whole.len()).for_each(|end| assert!(load(&whole[..end]).is_err(), "cut at {end}"));
    }

    #[test]
    fn tuples_and_dictionaries_in_each_other_are_refused_before_they_take_the_stack() {
        let tuples = [&b")"[..], &[0x85; 100_000], b"."].concat();
        let dicts = [&b"}K\x01".repeat(100_000)[..], b"}", &[b's'; 100_000], b"."].concat();
        for nested in [tuples, dicts] {
            assert!(load(&nested).err().unwrap().contains("nested more than 32 deep"));
        }
    }

    /// A megabyte of text on top of the stack, then something that uses it a million times.
    #[test]
    fn what_is_used_a_million_times_is_kept_once() {
        let text = [&b"X\x00\x00\x10\x00"[..], &[b'a'; 1 << 20], b"q\x00"].concat();
        let doubled = b"h\x00h\x00\x86q\x00".repeat(DEEPEST - 1);
        let recalled = b"h\x00".repeat(MOST_INSTRUCTIONS - 3);
        for attack in [[&text[..], &recalled].concat(), [&text[..], &doubled].concat()] {
            let end = [&attack[..], b"."].concat();
            assert!(load(&end).is_ok());
        }
    }

    #[global_allocator]
    static ALLOCATOR: bregman_memory::Counting = bregman_memory::Counting;

    /// Every way to keep much by few bytes: on the stack, as marks, in the memo, in tuples and dictionaries.
    #[test]
    fn no_pickle_keeps_many_times_its_size() {
        let text = b"X\x00\x00\x00\x00";
        let ways: [(&[u8], &[u8]); 10] = [
            (b"", b")"),
            (b"", b"N"),
            (b"", b"}"),
            (b"", b"("),
            (b"", b"\x8f"),
            (b")", b"\x94"),
            (b"}", b"))s"),
            (b"}q\x00", b"h\x00"),
            (b"(", b"cc\n\n"),
            (b"", text),
        ];
        for (begin, repeated) in ways {
            let count = (MOST_BYTES - begin.len()) / repeated.len();
            let pickle = [begin, &repeated.repeat(count)].concat();
            let (loaded, taken) = bregman_memory::of_thread(|| load(&pickle).is_ok());
            let megabytes = taken.peak >> 20;
            assert!(!loaded && megabytes < 200, "{} keeps {megabytes} MB", repeated.escape_ascii());
        }
    }

    #[test]
    fn a_pickle_of_many_megabytes_or_dimensions_is_refused() {
        assert!(load(&vec![b'N'; MOST_BYTES + 1]).err().unwrap().contains("16 MB"));
        let shape = [&b"("[..], &b"K\x01".repeat(65), b"t"].concat();
        let storage = b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000tQK\x00";
        let tensor = [b"ctorch._utils\n_rebuild_tensor_v2\n", &storage[..], &shape, &shape, b"tR."].concat();
        assert!(load(&tensor).err().unwrap().contains("65 dimensions"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            let _ = load(&bytes);
        }
    }
}

//! A pickle reader that can only build what a `state_dict` needs: dictionaries, numbers, strings and tensors.
//!
//! A pickle is a program for a stack machine that can call any function by name. This one knows three: `OrderedDict`,
//! `torch._utils._rebuild_tensor_v2` and `_rebuild_parameter`. Everything else is refused by name; nothing is ever
//! executed.

use super::Format;

type Result<T> = std::result::Result<T, String>;

/// Values that the stack machine handles.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Nothing,
    Int(i64),
    Text(String),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Function(Function),
    StorageType(Format),
    Storage {
        format: Format,
        key: String,
    },
    Tensor(TensorRef),
    /// Something kept for later that we do not copy.
    Opaque,
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
    pub(super) key: String,
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl Value {
    /// How many values it holds, itself included.
    fn size(&self) -> usize {
        match self {
            Self::Tuple(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Self::Dict(items) => 1 + items.iter().map(|(key, value)| key.size() + value.size()).sum::<usize>(),
            _ => 1,
        }
    }

    fn sizes(&self) -> Result<Vec<usize>> {
        let Self::Tuple(items) = self else { return Err("pickle: expected a tuple of sizes".to_owned()) };
        items.iter().map(Self::index).collect()
    }

    fn index(&self) -> Result<usize> {
        match self {
            Self::Int(value) => usize::try_from(*value).map_err(|_| format!("pickle: negative size {value}")),
            other => Err(format!("pickle: expected a number, found {other:?}")),
        }
    }
}

/// Runs the pickle and returns the value it makes.
pub(super) fn load(bytes: &[u8]) -> Result<Value> {
    Machine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: Vec::new() }.run()
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Value>,
}

impl Machine<'_> {
    fn run(mut self) -> Result<Value> {
        loop {
            let code = self.take(1)?[0];
            match code {
                0x80 => drop(self.take(1)?), // PROTO
                0x95 => drop(self.take(8)?), // FRAME
                b'.' => return self.pop(),
                b'N' => self.stack.push(Value::Nothing),
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
                b'}' => self.stack.push(Value::Dict(Vec::new())),
                b')' | b']' => self.stack.push(Value::Tuple(Vec::new())),
                b't' => {
                    let items = self.since_mark()?;
                    self.stack.push(Value::Tuple(items));
                }
                0x85..=0x87 => {
                    let start =
                        self.stack.len().checked_sub(usize::from(code - 0x84)).ok_or("pickle: stack is empty")?;
                    let items = self.stack.split_off(start);
                    self.stack.push(Value::Tuple(items));
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
        let text = String::from_utf8(self.take(len)?.to_vec()).map_err(|_| "pickle: text is not UTF-8")?;
        self.stack.push(Value::Text(text));
        Ok(())
    }

    fn keep<const N: usize>(&mut self) -> Result<()> {
        let slot = self.number::<N>()?;
        self.keep_at(slot)
    }

    /// Remembers the top of the stack. Large values are only noted, so that no pickle can multiply itself.
    fn keep_at(&mut self, slot: usize) -> Result<()> {
        const LARGEST: usize = 64;
        let top = self.stack.last().ok_or("pickle: stack is empty")?;
        if slot > self.bytes.len() {
            return Err("pickle: memo slot out of range".to_owned());
        }
        if self.memo.len() <= slot {
            self.memo.resize(slot + 1, Value::Opaque);
        }
        self.memo[slot] = if top.size() <= LARGEST { top.clone() } else { Value::Opaque };
        Ok(())
    }

    fn recall<const N: usize>(&mut self) -> Result<()> {
        let slot = self.number::<N>()?;
        match self.memo.get(slot) {
            Some(Value::Opaque) | None => Err("pickle: refers to a value that a state_dict does not share".to_owned()),
            Some(value) => {
                self.stack.push(value.clone());
                Ok(())
            }
        }
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
            _ => {
                return Err(format!(
                    "pickle: {module}.{name} is not part of a plain state_dict; save `model.state_dict()` only"
                ));
            }
        };
        self.stack.push(value);
        Ok(())
    }

    /// `("storage", type, key, device, count)` names a member of the archive.
    fn storage(&mut self) -> Result<()> {
        let value = self.pop()?;
        let Value::Tuple(items) = &value else {
            return Err("pickle: a storage is not described by a tuple".to_owned());
        };
        let [Value::Text(kind), Value::StorageType(format), Value::Text(key), ..] = items.as_slice() else {
            return Err("pickle: unknown description of a storage".to_owned());
        };
        if kind != "storage" {
            return Err(format!("pickle: persistent object {kind} is not a storage"));
        }
        self.stack.push(Value::Storage { format: *format, key: key.clone() });
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments), Value::Function(function)) = (arguments, function) else {
            return Err("pickle: calls something that is no function".to_owned());
        };
        let value = match (function, arguments.as_slice()) {
            (Function::Dict, []) => Value::Dict(Vec::new()),
            (Function::Tensor, [Value::Storage { format, key }, offset, shape, strides, ..]) => {
                let (shape, strides) = (shape.sizes()?, strides.sizes()?);
                if shape.len() != strides.len() {
                    return Err("pickle: shape and strides of a tensor disagree".to_owned());
                }
                Value::Tensor(TensorRef { format: *format, key: key.clone(), offset: offset.index()?, shape, strides })
            }
            (Function::Parameter, [tensor @ Value::Tensor(_), ..]) => tensor.clone(),
            _ => return Err("pickle: unexpected arguments".to_owned()),
        };
        self.stack.push(value);
        Ok(())
    }

    fn insert(&mut self, items: Vec<Value>) -> Result<()> {
        let Some(Value::Dict(dict)) = self.stack.last_mut() else {
            return Err("pickle: sets an item outside of a dictionary".to_owned());
        };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            dict.push((key, value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pickle_that_calls_a_foreign_function_is_refused_by_name() {
        let attack = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R.";
        assert!(load(attack).unwrap_err().contains("os.system"));
    }

    #[test]
    fn no_truncation_of_a_pickle_panics() {
        let whole = b"\x80\x02ccollections\nOrderedDict\n)Rq\x00X\x01\x00\x00\x00aK\x07s}b.";
        assert!(matches!(load(whole), Ok(Value::Dict(items)) if items.len() == 1));
        (0..whole.len()).for_each(|end| assert!(load(&whole[..end]).is_err(), "cut at {end}"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            let _ = load(&bytes);
        }
    }
}

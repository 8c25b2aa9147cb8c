//! The part of protobuf's wire format that ONNX and TensorBoard need: varints, floats, and bytes after their length.
//!
//! A message is a sequence of fields, each a key `number << 3 | wire type` and its value.
//! <https://protobuf.dev/programming-guides/encoding>

/// A message under construction: fields are appended in the order of the calls.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// An integer or an enum; negative ones take ten bytes.
    pub fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    /// A single-precision number.
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A double-precision number.
    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Bytes.
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// Text.
    pub fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    /// A message inside this one.
    pub fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// A field that occurs once per item.
    pub fn each<T>(self, items: impl IntoIterator<Item = T>, append: impl FnMut(Self, T) -> Self) -> Self {
        items.into_iter().fold(self, append)
    }

    /// The encoded message.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, field: u32, wire: u8) {
        self.varint(u64::from(field) << 3 | u64::from(wire));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_the_specification_shows() {
        // the examples of protobuf.dev: 150 in field 1, "testing" in field 2, a message in field 3
        let inner = Message::default().int(1, 150);
        assert_eq!(inner.0, [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing").finish();
        assert_eq!(text, *b"\x12\x07testing");
        assert_eq!(Message::default().message(3, &inner).finish(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(
            Message::default().int(1, -2).finish(),
            [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]
        );
        assert_eq!(Message::default().float(20, 1.0).finish(), [0xa5, 0x01, 0, 0, 0x80, 0x3f]);
        assert_eq!(Message::default().double(1, 1.0).finish(), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }
}

//! A request's decoded head.

use bytes::Bytes;

/// The pseudo-header fields and the fields of a request, in the order they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `:method`.
    pub method: Bytes,
    /// `:scheme`.
    pub scheme: Bytes,
    /// `:authority`; empty when it was not sent.
    pub authority: Bytes,
    /// `:path`.
    pub path: Bytes,
    /// The other fields. Names are lower case.
    pub fields: Vec<(Bytes, Bytes)>,
    /// `content-length`, when it was sent.
    pub content_length: Option<u64>,
}

impl Head {
    /// The first value of the field `name` (lower case).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value)
    }
}

impl Head {
    /// What it holds, about: names, values, and the table of them.
    #[must_use]
    pub fn size(&self) -> usize {
        let fields = self.fields.iter();
        let fields: usize = fields.map(|(name, value)| name.len() + value.len() + 64).sum();
        fields + self.path.len() + self.authority.len()
    }

    /// Checks and sorts the fields of a request; `None` when it is malformed.
    /// Source: RFC 9113 8.1 to 8.3.
    #[must_use]
    pub fn request(fields: Vec<(Bytes, Bytes)>) -> Option<Head> {
        let mut head = Head { fields: Vec::with_capacity(fields.len()), ..Head::default() };
        let mut pseudo = Pseudo::default();
        for (name, value) in fields {
            if !value_is_valid(&value) {
                return None;
            }
            if name.first() == Some(&b':') {
                let in_order = head.fields.is_empty();
                let place = match &name[..] {
                    b":method" => pseudo.method.place(&mut head.method),
                    b":scheme" => pseudo.scheme.place(&mut head.scheme),
                    b":authority" => pseudo.authority.place(&mut head.authority),
                    b":path" => pseudo.path.place(&mut head.path),
                    _ => None,
                };
                if !in_order {
                    return None;
                }
                *place? = value;
                continue;
            }
            if !name_is_valid(&name) || !field_is_allowed(&name, &value) {
                return None;
            }
            if name == "content-length" {
                let length = std::str::from_utf8(&value).ok()?.parse().ok()?;
                if head.content_length.is_some_and(|known| known != length) {
                    return None;
                }
                head.content_length = Some(length);
            }
            head.fields.push((name, value));
        }
        let complete = pseudo.method.0 && pseudo.scheme.0 && !head.path.is_empty();
        complete.then_some(head)
    }
}

/// Which pseudo-header fields came.
#[derive(Default)]
struct Pseudo {
    method: Once,
    scheme: Once,
    authority: Once,
    path: Once,
}

#[derive(Default)]
struct Once(bool);

impl Once {
    /// Where the value goes the first time; a second one is malformed.
    fn place<'a>(&mut self, target: &'a mut Bytes) -> Option<&'a mut Bytes> {
        (!std::mem::replace(&mut self.0, true)).then_some(target)
    }
}

/// A lower-case token.
fn name_is_valid(name: &[u8]) -> bool {
    let allowed = |byte: &u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' => true,
        _ => b"!#$%&'*+-.^_`|~".contains(byte),
    };
    !name.is_empty() && name.iter().all(allowed)
}

fn value_is_valid(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

/// Fields that speak of an HTTP/1 connection have no place here.
fn field_is_allowed(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            false
        }
        b"te" => value == b"trailers",
        _ => true,
    }
}

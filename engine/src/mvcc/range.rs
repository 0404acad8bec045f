//! Which keys a request names.

use bytes::Bytes;

/// An interval of keys in byte order. It owns its bounds and may cross cores.
///
/// Source: etcd `rpc.proto` `RangeRequest.key` and `range_end`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The first key, part of the range.
    pub start: Bytes,
    /// Where the range ends.
    pub end: End,
}

/// The upper bound of a [`KeyRange`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Only `start` itself.
    Single,
    /// Every key from `start` on that is smaller than this one.
    Before(Bytes),
    /// Every key from `start` on.
    Unbounded,
}

impl KeyRange {
    /// The range a request means by `key` and `range_end`: an empty end is the single key, one
    /// zero byte is "from key on", anything else is the first key behind the range.
    #[must_use]
    pub fn from_wire(key: &Bytes, range_end: &Bytes) -> KeyRange {
        let end = match range_end.as_ref() {
            [] => End::Single,
            [0] => End::Unbounded,
            _ => End::Before(range_end.clone()),
        };
        KeyRange { start: key.clone(), end }
    }

    /// The range of one key.
    #[must_use]
    pub fn single(key: Bytes) -> KeyRange {
        KeyRange { start: key, end: End::Single }
    }

    /// Every key there is.
    #[must_use]
    pub fn everything() -> KeyRange {
        KeyRange { start: Bytes::new(), end: End::Unbounded }
    }

    /// Every key that begins with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let start = Bytes::copy_from_slice(prefix);
        let kept = prefix.iter().rposition(|&byte| byte != 0xff);
        let Some(last) = kept else { return KeyRange { start, end: End::Unbounded } };
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        KeyRange { start, end: End::Before(end.into()) }
    }

    /// Whether no key at all can be in it: `range_end` at or below `key`.
    #[must_use]
    pub fn is_empty_interval(&self) -> bool {
        match &self.end {
            End::Before(end) => end <= &self.start,
            End::Single | End::Unbounded => false,
        }
    }

    /// Whether `key` is in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => self.start == key,
            End::Before(end) => self.start <= key && key < end.as_ref(),
            End::Unbounded => self.start <= key,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves that the wire forms of contract section 1 mean what the table says.
    use super::*;

    fn wire(key: &'static [u8], end: &'static [u8]) -> KeyRange {
        KeyRange::from_wire(&Bytes::from_static(key), &Bytes::from_static(end))
    }

    #[test]
    fn wire_forms() {
        assert!(wire(b"a", b"").contains(b"a"));
        assert!(!wire(b"a", b"").contains(b"a\0"));
        assert!(wire(b"a", b"c").contains(b"b\xff"));
        assert!(!wire(b"a", b"c").contains(b"c"));
        assert!(wire(b"a", b"\0").contains(b"\xff\xff"));
        assert!(!wire(b"b", b"\0").contains(b"a"));
        assert!(wire(b"c", b"a").is_empty_interval());
        assert!(wire(b"c", b"c").is_empty_interval());
        assert!(!wire(b"c", b"\0").is_empty_interval());
        assert!(!wire(b"c", b"a").contains(b"b"));
    }

    #[test]
    fn prefixes() {
        assert_eq!(KeyRange::prefix(b"a").end, End::Before(Bytes::from_static(b"b")));
        assert_eq!(KeyRange::prefix(b"a\xff").end, End::Before(Bytes::from_static(b"b")));
        assert_eq!(KeyRange::prefix(b"\xff\xff").end, End::Unbounded);
        assert_eq!(KeyRange::prefix(b"").end, End::Unbounded);
    }
}

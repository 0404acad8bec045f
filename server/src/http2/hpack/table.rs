//! The static table, and the dynamic table that a client fills. Source: RFC 7541 2.3, appendix A.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::limits::HEADER_TABLE_BYTES_MAX;

/// What an entry costs besides its bytes. Source: RFC 7541 4.1.
const ENTRY_OVERHEAD_BYTES: usize = 32;

/// Entries 1 to 61.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The dynamic table of a decoder.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<(Bytes, Bytes)>,
    size: usize,
    size_max: usize,
    /// Counts every change, so that equal counts mean an equal table.
    changes: u64,
}

impl Default for Table {
    fn default() -> Table {
        Table { entries: VecDeque::new(), size: 0, size_max: HEADER_TABLE_BYTES_MAX, changes: 0 }
    }
}

impl Table {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The field at `index`, counted from 1 through the static and then the dynamic table.
    pub(super) fn get(&self, index: usize) -> Option<(Bytes, Bytes)> {
        let index = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            let name = Bytes::from_static(name.as_bytes());
            return Some((name, Bytes::from_static(value.as_bytes())));
        }
        self.entries.get(index - STATIC.len()).cloned()
    }

    /// Inserts in front; what no longer fits falls off the end.
    pub(super) fn insert(&mut self, name: Bytes, value: Bytes) {
        self.changes += 1;
        let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        self.evict(self.size_max.saturating_sub(size));
        if size <= self.size_max {
            self.size += size;
            self.entries.push_front((name, value));
        }
    }

    /// Sets the size the client wants; false when that is more than it may.
    #[must_use]
    pub(super) fn resize(&mut self, size_max: usize) -> bool {
        self.changes += 1;
        self.size_max = size_max;
        self.evict(size_max);
        size_max <= HEADER_TABLE_BYTES_MAX
    }

    fn evict(&mut self, size_max: usize) {
        while self.size > size_max {
            let Some((name, value)) = self.entries.pop_back() else { return };
            self.size -= name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        }
    }
}

/// Size of a field in a header list or the table.
pub(super) fn field_size(name: &Bytes, value: &Bytes) -> usize {
    name.len() + value.len() + ENTRY_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    /// Old entries fall off when the size is reached; an entry larger than the table empties it.
    #[test]
    fn evicts_oldest() {
        let mut table = Table::default();
        assert!(table.resize(100));
        table.insert(bytes("first"), bytes("1"));
        table.insert(bytes("second"), bytes("2"));
        table.insert(bytes("third"), bytes("3"));
        assert_eq!(table.get(62), Some((bytes("third"), bytes("3"))));
        assert_eq!(table.get(63), Some((bytes("second"), bytes("2"))));
        assert_eq!(table.get(64), None);
        table.insert(Bytes::from(vec![b'x'; 101]), bytes(""));
        assert_eq!((table.get(62), table.size), (None, 0));
    }

    /// Indexes begin at 1, and the dynamic entries follow the static ones.
    #[test]
    fn index_space() {
        let table = Table::default();
        assert_eq!(table.get(0), None);
        assert_eq!(table.get(2), Some((bytes(":method"), bytes("GET"))));
        assert_eq!(table.get(61), Some((bytes("www-authenticate"), bytes(""))));
        assert_eq!(table.get(62), None);
    }
}

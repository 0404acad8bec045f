//! Header blocks seen before. A client repeats its header block byte for byte; when decoding it
//! changed nothing in the dynamic table, and the table is still the same, the same bytes mean the
//! same head.

use std::rc::Rc;

use bytes::Bytes;

use super::super::head::Head;
use crate::limits::{HEADER_CACHE_BLOCK_BYTES_MAX, HEADER_CACHE_ENTRIES};

/// The last few blocks of one connection.
#[derive(Debug, Default)]
pub struct BlockCache {
    entries: Vec<Entry>,
    next: usize,
}

#[derive(Debug)]
struct Entry {
    block: Bytes,
    table_changes: u64,
    head: Rc<Head>,
}

impl BlockCache {
    /// The head of `block`, if it was decoded before with the table as it is now.
    #[must_use]
    pub fn find(&self, block: &[u8], table_changes: u64) -> Option<&Rc<Head>> {
        let same = |entry: &&Entry| entry.table_changes == table_changes && entry.block == block;
        self.entries.iter().find(same).map(|entry| &entry.head)
    }

    /// Remembers a block whose decoding left the table at `table_changes`, as it was before.
    pub fn remember(&mut self, block: &[u8], table_changes: u64, head: &Rc<Head>) {
        if block.len() > HEADER_CACHE_BLOCK_BYTES_MAX {
            return;
        }
        let block = Bytes::copy_from_slice(block);
        let entry = Entry { block, table_changes, head: head.clone() };
        if self.entries.len() < HEADER_CACHE_ENTRIES {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
        }
        self.next = (self.next + 1) % HEADER_CACHE_ENTRIES;
    }
}

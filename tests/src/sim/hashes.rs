//! `HashKV` over again, from the model's history alone: the judge of the store's own.
//!
//! Source: etcd `HashKV`; rules 12.5 and 12.6. CRC-32C over "key", then over the records in (main,
//! sub) order: `main(8, big-endian) _ sub(8)`, a `t` for a deletion, and the key-value's message.

use prost::Message;
use ringbolt_proto::mvccpb::event::EventType;
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::model::Model;

/// The polynomial of Castagnoli, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What each byte does to a CRC-32C.
static STEPS: [u32; 256] = steps();

const fn steps() -> [u32; 256] {
    let mut steps = [0; 256];
    let mut byte = 0u32;
    while byte < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        steps[byte as usize] = crc;
        byte += 1;
    }
    steps
}

/// A CRC-32C in the making.
struct Crc(u32);

impl Crc {
    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let [low, ..] = (self.0 ^ u32::from(*byte)).to_le_bytes();
            self.0 = (self.0 >> 8) ^ STEPS[usize::from(low)];
        }
    }
}

/// The hash of everything up to `revision` by a store that is compacted at `compacted`.
/// `remembered`: taken by the compaction at `revision` itself, which keeps a deletion at it.
#[must_use]
pub fn hash_kv(model: &Model, revision: i64, compacted: i64, remembered: bool) -> u32 {
    let last = |event: &Event, at: i64| {
        let kv = event.kv.as_ref().expect("the model checked it");
        model.get(&kv.key, at).is_some_and(|live| live.mod_revision == kv.mod_revision)
    };
    let deletes = |event: &&Event| event.r#type() == EventType::Delete;
    let keeps_any = !model.state(revision).is_empty()
        || (remembered && model.events(revision).iter().any(|event| deletes(&event)));
    let mut crc = Crc(u32::MAX);
    crc.feed(b"key");
    for (main, events) in model.log(0).take_while(|(main, _)| *main <= revision) {
        for (sub, event) in (0u64..).zip(events) {
            let stays = last(event, compacted) && (!keeps_any || last(event, revision));
            if main > compacted || stays {
                feed(&mut crc, main, sub, event);
            }
        }
    }
    !crc.0
}

fn feed(crc: &mut Crc, main: i64, sub: u64, event: &Event) {
    let kv = event.kv.clone().unwrap_or_default();
    crc.feed(&main.to_be_bytes());
    crc.feed(b"_");
    crc.feed(&sub.to_be_bytes());
    if event.r#type() == EventType::Delete {
        crc.feed(b"t");
        let bare = KeyValue { key: kv.key, ..KeyValue::default() };
        crc.feed(&bare.encode_to_vec());
    } else {
        crc.feed(&kv.encode_to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fresh store has the hash that the contract names.
    #[test]
    fn of_a_fresh_store() {
        assert_eq!(hash_kv(&Model::new(), 1, -1, false), 1_084_519_789);
    }
}

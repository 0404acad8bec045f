//! `HashKV` over again, from the model's history alone: the judge of the store's own.
//!
//! Source: etcd `HashKV`; rules 12.5 and 12.6. CRC-32C over "key", then over the records in (main,
//! sub) order: `main(8, big-endian) _ sub(8)`, a `t` for a deletion, and the key-value's message.

use std::collections::BTreeSet;

use prost::Message;
use ringbolt_proto::mvccpb::event::EventType;
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::model::Model;

/// The polynomial of Castagnoli, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `STEPS[n]`: what a byte does to a CRC-32C when `n` bytes follow it. Eight bytes go in at once.
static STEPS: [[u32; 256]; 8] = steps();

const fn steps() -> [[u32; 256]; 8] {
    let mut steps = [[0; 256]; 8];
    let mut byte = 0u32;
    while byte < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        steps[0][byte as usize] = crc;
        byte += 1;
    }
    let mut follow = 1;
    while follow < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = steps[follow - 1][byte];
            steps[follow][byte] = (before >> 8) ^ steps[0][(before & 0xff) as usize];
            byte += 1;
        }
        follow += 1;
    }
    steps
}

/// A CRC-32C in the making.
struct Crc(u32);

impl Crc {
    fn feed(&mut self, bytes: &[u8]) {
        let mut eights = bytes.chunks_exact(8);
        for eight in &mut eights {
            let mut mixed: [u8; 8] = eight.try_into().expect("chunks of eight");
            mixed.iter_mut().zip(self.0.to_le_bytes()).for_each(|(byte, crc)| *byte ^= crc);
            let steps = STEPS.iter().rev().zip(mixed);
            self.0 = steps.fold(0, |crc, (steps, byte)| crc ^ steps[usize::from(byte)]);
        }
        for byte in eights.remainder() {
            let [low, ..] = (self.0 ^ u32::from(*byte)).to_le_bytes();
            self.0 = (self.0 >> 8) ^ STEPS[0][usize::from(low)];
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
    // Up to the compacted revision only what was live at it may stay.
    let live: BTreeSet<i64> = model.state(compacted).iter().map(|kv| kv.mod_revision).collect();
    let old = live.iter().map(|main| (*main, model.events(*main)));
    let young = model.log(compacted + 1);
    for (main, events) in old.chain(young).take_while(|(main, _)| *main <= revision) {
        for (sub, event) in (0u64..).zip(events) {
            let stays = || last(event, compacted) && (!keeps_any || last(event, revision));
            if main > compacted || stays() {
                feed(&mut crc, main, sub, event);
            }
        }
    }
    !crc.0
}

fn feed(crc: &mut Crc, main: i64, sub: u64, event: &Event) {
    let kv = event.kv.as_ref().expect("the model checked it");
    crc.feed(&main.to_be_bytes());
    crc.feed(b"_");
    crc.feed(&sub.to_be_bytes());
    if event.r#type() == EventType::Delete {
        crc.feed(b"t");
        let bare = KeyValue { key: kv.key.clone(), ..KeyValue::default() };
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
    /// The check value of CRC-32C, and no difference between bytes at once and one by one.
    #[test]
    fn eight_bytes_are_eight_times_one() {
        let mut known = Crc(u32::MAX);
        known.feed(b"123456789");
        assert_eq!(!known.0, 0xe306_9283);
        let bytes: Vec<u8> = (0..77).map(|byte| byte * 3).collect();
        let (mut whole, mut single) = (Crc(7), Crc(7));
        whole.feed(&bytes);
        bytes.iter().for_each(|byte| single.feed(&[*byte]));
        assert_eq!(whole.0, single.0);
    }
}

//! The contract's rules of revisions, versions and compaction on small stores.

mod hash_vectors;
mod pieces;
mod random;

use bytes::Bytes;

use super::*;
use crate::{LeaseId, Reason, Revision};

const NO_LEASE: LeaseId = LeaseId(0);

fn put(mvcc: &mut Mvcc, key: &[u8], value: &[u8]) -> Revision {
    let mut write = mvcc.begin();
    write.put(key, value, NO_LEASE);
    write.finish()
}

fn delete(mvcc: &mut Mvcc, key: &[u8]) -> Revision {
    let mut write = mvcc.begin();
    write.delete(key);
    write.finish()
}

/// Generations of key `a`: put at 2 and 3, delete at 4, put at 5. Reads at each revision, then
/// compaction at 4, which keeps the deletion's record and nothing before it.
#[test]
fn generations_of_a_key() {
    let mut mvcc = Mvcc::new();
    assert_eq!(mvcc.revision(), Revision(1));
    assert_eq!(mvcc.compacted(), Revision(-1));
    put(&mut mvcc, b"a", b"1");
    put(&mut mvcc, b"a", b"2");
    assert_eq!(delete(&mut mvcc, b"a"), Revision(4));
    assert_eq!(delete(&mut mvcc, b"a"), Revision(4), "nothing to delete, no revision used");
    put(&mut mvcc, b"a", b"");
    let at = |mvcc: &Mvcc, revision| {
        mvcc.get(b"a", Revision(revision))
            .map(|kv| (kv.create_revision, kv.mod_revision, kv.version, kv.value))
    };
    assert_eq!(at(&mvcc, 1), None);
    assert_eq!(at(&mvcc, 2), Some((2, 2, 1, Bytes::from_static(b"1"))));
    assert_eq!(at(&mvcc, 3), Some((2, 3, 2, Bytes::from_static(b"2"))));
    assert_eq!(at(&mvcc, 4), None);
    assert_eq!(at(&mvcc, 5), Some((5, 5, 1, Bytes::new())));

    assert_eq!(mvcc.compact(Revision(6)), Err(Reason::FutureRevision));
    assert_eq!(mvcc.compact(Revision(4)), Ok(()));
    assert_eq!(mvcc.compact(Revision(4)), Err(Reason::Compacted));
    while mvcc.compact_slice(1) {}
    mvcc.check();
    assert_eq!(mvcc.check_revision(3), Err(Reason::Compacted));
    assert_eq!(mvcc.check_revision(4), Ok(Revision(4)));
    assert_eq!(mvcc.check_revision(-1), Ok(Revision(5)));
    let log: Vec<_> =
        mvcc.events(Revision(0)).map(|event| (event.main.0, event.sub, event.kind)).collect();
    assert_eq!(log, [(4, 0, Kind::Delete), (5, 0, Kind::Put)]);
}

/// All changes of one transaction share a revision and are told apart by sub, in order.
#[test]
fn transaction_shares_a_revision() {
    let mut mvcc = Mvcc::new();
    put(&mut mvcc, b"b", b"old");
    let mut write = mvcc.begin();
    assert!(!write.changed());
    write.put(b"a", b"1", LeaseId(7));
    assert_eq!(write.get(b"a").map(|kv| kv.lease), Some(7));
    assert_eq!(write.count(&KeyRange::everything()), 2);
    assert_eq!(write.delete(b"b").map(|kv| kv.value), Some(Bytes::from_static(b"old")));
    assert_eq!(write.mvcc().count(&KeyRange::everything(), Revision(2)), 1);
    assert_eq!(write.range(&KeyRange::everything(), 0, Values::KeysOnly).len(), 1);
    assert_eq!(write.finish(), Revision(3));
    let events: Vec<_> = mvcc.events(Revision(3)).collect();
    assert_eq!(events.len(), 2);
    assert_eq!(mvcc.previous(&events[0]), None);
    let previous = mvcc.previous(&events[1]).expect("b was live at 2");
    assert_eq!(previous.value, Bytes::from_static(b"old"));
    let kv = events[1].kv();
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (0, 3, 0));
}

/// A fence moves the revision and forgets what lies below it.
#[test]
fn fence_jumps() {
    let mut mvcc = Mvcc::new();
    put(&mut mvcc, b"a", b"1");
    put(&mut mvcc, b"a", b"2");
    mvcc.fence(Revision(1000), Revision(1000));
    while mvcc.compact_slice(10) {}
    mvcc.check();
    assert_eq!(mvcc.revision(), Revision(1000));
    assert_eq!(mvcc.check_revision(3), Err(Reason::Compacted));
    assert_eq!(mvcc.get(b"a", Revision(1000)).map(|kv| kv.version), Some(2));
    assert_eq!(put(&mut mvcc, b"a", b"3"), Revision(1001));
}

/// An export read back in small chunks is the same store.
#[test]
fn export_round_trip() {
    let mut mvcc = Mvcc::new();
    for round in 0..5u8 {
        put(&mut mvcc, &[b'k', round % 3], &[round; 9]);
    }
    delete(&mut mvcc, b"k\0");
    mvcc.compact(Revision(4)).expect("revision 4 exists");
    let mut cursor = ExportCursor::new(&mvcc);
    let mut importer = Importer::new();
    while let Some(chunk) = mvcc.export(&mut cursor, 80) {
        importer.feed(&chunk).expect("our own chunk");
    }
    let copy = importer.finish().expect("the last chunk was fed");
    copy.check();
    assert_eq!(copy.hash_kv(0), mvcc.hash_kv(0));
    assert_eq!(copy.revision(), mvcc.revision());
    assert_eq!(copy.get(b"k\x01", Revision(6)), mvcc.get(b"k\x01", Revision(6)));
}

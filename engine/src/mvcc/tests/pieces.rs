//! Reads in pieces see what reads in one go see, however small the pieces are and whatever removal
//! does between them.

use std::ops::ControlFlow;

use super::super::{KeyRange, Mvcc, Next, Rest};
use crate::{LeaseId, Revision};

/// A number of chance.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

fn grown(seed: u64) -> Mvcc {
    let mut mvcc = Mvcc::new();
    let mut state = seed;
    for round in 0..600 {
        // A few keys have long histories, many come late.
        let key = match draw(&mut state, 3) {
            0 => format!("a{}", draw(&mut state, 3)),
            _ => format!("k{:03}", draw(&mut state, 1 + round / 2)),
        };
        let mut write = mvcc.begin();
        if draw(&mut state, 5) == 0 {
            write.delete(key.as_bytes());
        } else {
            write.put(key.as_bytes(), format!("v{round}").as_bytes(), LeaseId(0));
        }
        write.finish();
    }
    mvcc
}

fn in_one_go(mvcc: &Mvcc, range: &KeyRange, at: Revision) -> Vec<(Vec<u8>, Revision)> {
    let mut seen = Vec::new();
    mvcc.visit(range, at, &mut |version| {
        seen.push((version.key.to_vec(), version.mod_));
        ControlFlow::Continue(())
    });
    seen
}

/// Pieces of one to seven looks, with pauses by the visitor and removal between them.
#[test]
fn pieces_see_the_same() {
    for seed in 1..40 {
        let mut mvcc = grown(seed);
        let mut state = seed;
        let last = mvcc.revision().0;
        let compacted = 2 + i64::try_from(draw(&mut state, 300)).expect("small");
        mvcc.compact(Revision(compacted)).expect("a revision of the store");
        for _ in 0..20 {
            let span = u64::try_from(last - compacted + 1).expect("small");
            let at = Revision(compacted + i64::try_from(draw(&mut state, span)).expect("small"));
            let range = match draw(&mut state, 3) {
                0 => KeyRange::everything(),
                1 => KeyRange::prefix(b"k"),
                _ => KeyRange { start: "a1".into(), end: super::super::End::Single },
            };
            let whole = in_one_go(&mvcc, &range, at);
            let mut seen = Vec::new();
            let mut rest = Some(Rest::from(range));
            let mut pieces = 0;
            while let Some(from) = rest.take() {
                let looks = 1 + usize::try_from(draw(&mut state, 7)).expect("small");
                let mut left = 1 + draw(&mut state, 3);
                rest = mvcc.visit_some(from, at, looks, &mut |version| {
                    if left == 0 {
                        return Next::Pause;
                    }
                    left -= 1;
                    seen.push((version.key.to_vec(), version.mod_));
                    Next::GoOn
                });
                let steps = usize::try_from(draw(&mut state, 4)).expect("small");
                mvcc.compact_slice(steps);
                pieces += 1;
                assert!(pieces < 100_000, "seed {seed}: a walk that never ends");
            }
            assert_eq!(seen, whole, "seed {seed}, at {at}");
        }
        mvcc.check();
    }
}

/// A hash in pieces of one record is the hash in one go.
#[test]
fn a_hash_in_pieces_is_the_same() {
    for seed in 1..20 {
        let mut mvcc = grown(seed);
        mvcc.compact(Revision(100 + i64::try_from(seed).expect("small"))).expect("a revision");
        while mvcc.compact_slice(3) {}
        for at in [0, 130, 400] {
            let whole = mvcc.hash_kv(at).expect("not compacted");
            let mut walk = mvcc.hash_walk(at).expect("not compacted");
            let pieces = loop {
                if let Some(hash) = mvcc.hash_step(&mut walk, 1).expect("not compacted") {
                    break hash;
                }
            };
            assert_eq!(pieces, whole, "seed {seed}, at {at}");
        }
    }
}

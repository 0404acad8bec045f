//! The files of a stopped member, damaged, and a start on them.
//!
//! ```text
//! input: | whose files (1), below 128 | damage | damage | …     see `damage`
//!        | whose files (1), from 128 on | forgery | forgery | …  see `forge`
//! ```
//!
//! - D1 A start ends, without a panic, whatever the files hold.
//! - D2 After one damage it shows exactly what was there, or refuses and names the place. The last
//!   write of a member that crashed may be missing, when nothing vouched for it.
//! - D3 After several, what it shows holds together.
//! - D4 Forged files, whose checksums hold, are refused with file, offset, expected and found; or
//!   they make sense: then what they show holds together, and the member takes a write and stops.
//!
//! What is damaged are the lives of `corrupt`, with their small segments.

use std::sync::LazyLock;

mod forge;
mod repair;

use ringbolt_engine::replica::{OpenError, Replica};
use ringbolt_engine::snapshot::LoadError;
use ringbolt_engine::state::{Command, Member, Members};
use ringbolt_engine::wal;
use ringbolt_engine::{MemberId, Revision};
use ringbolt_proto::etcdserverpb::PutRequest;

pub use crate::corrupt::base::Files;
use crate::corrupt::base::{Base, config, machine_with, open_and_see, run as run_process};
use crate::corrupt::damage::{Damage, Place};
use crate::corrupt::judge::judge;
use crate::script::{Script, put_long_piece};
use repair::Layout;

/// Seeds of the lives: some short ones, ended in each way.
const LIVES: [u64; 6] = [3, 5, 8, 11, 12, 21];
const DAMAGES_MAX: usize = 8;
/// The bit of the first byte that asks for forgeries.
const FORGED: u8 = 0x80;

static BASES: LazyLock<Vec<(Base, Layout)>> = LazyLock::new(|| {
    let with_layout = |base: Base| {
        let layout = Layout::of(&base.files);
        (base, layout)
    };
    LIVES.map(|seed| with_layout(Base::new(seed))).into()
});

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let first = script.byte();
    let (base, layout) = &BASES[usize::from(first & !FORGED) % BASES.len()];
    if first & FORGED != 0 {
        return forged(script, base, layout);
    }
    let mut places = vec![];
    while !script.is_over() && places.len() < DAMAGES_MAX {
        places.push(damage(&mut script, &base.files));
    }
    if let [place] = &places[..] {
        if let Err(wrong) = judge(base, place) {
            panic!("D2: life {}, {place}: {wrong}", base.seed);
        }
        return;
    }
    let mut files = base.files.clone();
    for place in &places {
        place.apply(&mut files);
    }
    let (mut world, machine) = machine_with(base.seed, &files);
    let _ = open_and_see(&mut world, machine);
}

/// D4.
fn forged(mut script: Script<'_>, base: &Base, layout: &Layout) {
    let mut files = base.files.clone();
    for _ in 0..DAMAGES_MAX {
        if script.is_over() {
            break;
        }
        forge::forge(&mut script, layout, &mut files);
    }
    layout.repair(&mut files);
    let (mut world, machine) = machine_with(base.seed, &files);
    let refused = run_process((&mut world, machine), |io| async move {
        let replica = match Replica::open(io, config()).await {
            Ok(replica) => replica,
            Err(error) => return Some(error),
        };
        let put = PutRequest { key: "after".into(), ..PutRequest::default() };
        // It may be refused: by an alarm, for example.
        let _ = replica.propose(Command::Put(put)).await;
        replica.state().check();
        replica.close().await;
        None
    });
    match refused {
        None
        | Some(
            OpenError::Log(wal::OpenError::Corrupt(_) | wal::OpenError::Version { .. })
            | OpenError::Checkpoint(LoadError::Corrupt(_) | LoadError::Version { .. })
            | OpenError::Config(_),
        ) => {}
        Some(error) => panic!("D4: life {}: refused without a place: {error}", base.seed),
    }
}

/// One damage.
fn damage(script: &mut Script<'_>, files: &Files) -> Place {
    let which = usize::from(script.byte());
    let name = |number: usize| files.keys().nth(number % files.len()).expect("a life has files");
    let file = name(which).clone();
    let size = files[&file].len().max(1);
    let kind = script.byte();
    let at = usize::try_from(script.word()).expect("32 bits") % size;
    let block = at / 4096;
    let damage = match kind % 10 {
        0 => Damage::Flip { at, bit: script.byte() % 8 },
        // Most of what means something stands at the beginning of a block.
        1 => {
            let at = block * 4096 + at % 160;
            Damage::Write { at, bytes: script.piece().to_vec() }
        }
        2 | 3 => Damage::Write { at, bytes: script.piece().to_vec() },
        4 => Damage::Zero { block },
        5 | 6 => {
            let other = name(usize::from(script.byte())).clone();
            let from = usize::from(script.byte()) % (files[&other].len() / 4096).max(1);
            if kind % 10 == 5 {
                Damage::Copy { block, other, from }
            } else {
                Damage::Swap { block, other, with: from }
            }
        }
        7 => Damage::Cut { size: at },
        8 => Damage::Grow { count: 1 + usize::from(script.short()) },
        _ => Damage::Missing,
    };
    Place { file, damage }
}

/// Each kind of damage, alone and together, in each life.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![];
    for life in 0..u8::try_from(LIVES.len()).expect("few") {
        for kind in 0..10_u8 {
            let place = [kind, kind, 0, life, kind * 16, 40, 4, 1, 2, 3, 4];
            seeds.push([&[life], &place[..]].concat());
            seeds.push([&[life], &place[..], &[kind + 1], &place[1..]].concat());
        }
        for kind in 0..forge::KINDS {
            for place in 0..4 {
                let forgery = [kind, 3 * place, place, 0, 1, 4, 9, 8, 7, 6, 5, 4];
                seeds.push([&[FORGED | life], &forgery[..]].concat());
            }
        }
        for command in commands() {
            for back in [0, 2] {
                let mut seed = vec![FORGED | life, 2, back, 0];
                put_long_piece(&mut seed, &command.encode());
                seeds.push(seed);
            }
        }
        // A change of raft's own members.
        seeds.push(vec![FORGED | life, 2, 1, 2, 0, 6, 0x12, 4, 0x08, 0, 0x10, 7]);
    }
    seeds
}

/// Commands that no request makes, or none at this moment.
fn commands() -> Vec<Command> {
    let member = |id, raft_id, is_learner| Member {
        id: MemberId(id),
        raft_id,
        is_learner,
        ..Member::default()
    };
    let fence = |revision, compacted| Command::Fence {
        revision: Revision(revision),
        compacted: Revision(compacted),
    };
    vec![
        Command::Put(PutRequest::default()),
        Command::Membership(Members::default()),
        Command::Membership(Members::of([member(1, 1, false), member(2, 2, false)])),
        Command::Membership(Members::of([member(1, 1, true)])),
        fence(1, 1),
        fence(i64::MAX, i64::MAX),
        fence(-1, 5),
        Command::ClusterVersion("99.0.0".to_owned()),
        Command::ClusterVersion("x".to_owned()),
    ]
}

/// What the files begin with, and numbers that are large.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let words: [&[u8]; 6] =
        [b"RBWB", b"RBMK", b"RBCP", &[0xff; 8], &[0, 0, 0, 0x80], &[0, 0, 0, 0, 1, 0, 0, 0]];
    words.iter().map(|word| word.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::{run, seeds};

    /// Files whose checksums somebody set right were believed: a log with a change of raft's
    /// members, or a checkpoint with other voters, ended in "a sole voter has nobody to write to",
    /// a counter at its end in an overflow, a fence behind the store's revision in an assert.
    #[test]
    fn forged_files_are_refused_not_believed() {
        let mut failed = vec![];
        for seed in seeds() {
            if std::panic::catch_unwind(|| run(&seed)).is_err() {
                failed.push(seed);
            }
        }
        assert!(failed.is_empty(), "{failed:02x?}");
    }
}

//! The files of a stopped member, damaged, and a start on them.
//!
//! ```text
//! input: | whose files (1) | damage | damage | …     see `damage`
//! ```
//!
//! - D1 A start ends, without a panic, whatever the files hold.
//! - D2 After one damage it shows exactly what was there, or refuses and names the place. The last
//!   write of a member that crashed may be missing, when nothing vouched for it.
//! - D3 After several, what it shows holds together.
//!
//! What is damaged are the lives of `corrupt`, with their small segments.

use std::sync::LazyLock;

use crate::corrupt::base::{Base, Files, machine_with, open_and_see};
use crate::corrupt::damage::{Damage, Place};
use crate::corrupt::judge::judge;

use crate::script::Script;

/// Seeds of the lives: some short ones, ended in each way.
const LIVES: [u64; 6] = [3, 5, 8, 11, 12, 21];
const DAMAGES_MAX: usize = 8;

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| LIVES.map(Base::new).into());

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let base = &BASES[usize::from(script.byte()) % BASES.len()];
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
    }
    seeds
}

/// What the files begin with, and numbers that are large.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let words: [&[u8]; 6] =
        [b"RBWB", b"RBMK", b"RBCP", &[0xff; 8], &[0, 0, 0, 0x80], &[0, 0, 0, 0, 1, 0, 0, 0]];
    words.iter().map(|word| word.to_vec()).collect()
}

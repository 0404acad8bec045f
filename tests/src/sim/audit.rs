//! Convergence: what is on disk, replayed entry by entry, comes to the same rolling hash at every
//! index at which the hash was seen while the store was alive.

use std::collections::BTreeMap;

use ringbolt_engine::mvcc::Importer;
use ringbolt_engine::snapshot::{self, Section};
use ringbolt_engine::state::{Command, State, StateConfig};
use ringbolt_engine::wal::{Recovered, Wal, WalConfig};
use ringbolt_io::Io;

use super::store::Place;

/// Replays the closed log at `place`; gives how many of the hashes `seen` at an index were met.
///
/// # Errors
/// The first index with another hash, or what cannot be read.
pub(super) async fn replay(
    io: &Io,
    place: &Place,
    config: (WalConfig, StateConfig),
    seen: &BTreeMap<u64, u64>,
) -> Result<u64, String> {
    let (wal, recovered) =
        Wal::open(io, &place.directory, config.0).await.map_err(|error| error.to_string())?;
    let mut state = stored_state(io, place, &recovered, config.1).await?;
    let mut met = 0;
    meet(&state, seen, &mut met)?;
    let base = state.applied();
    for entry in recovered.entries.iter().filter(|entry| entry.index > base) {
        let command = Command::decode(entry.data.clone())?;
        // Refused or not: so it was then, too.
        let _ = state.apply(entry.index, entry.term, &command);
        meet(&state, seen, &mut met)?;
    }
    state.check();
    wal.close().await.map_err(|failure| failure.to_string())?;
    Ok(met)
}

fn meet(state: &State, seen: &BTreeMap<u64, u64>, met: &mut u64) -> Result<(), String> {
    let index = state.applied().0;
    let hash = state.rolling().value();
    match seen.get(&index) {
        Some(then) if *then != hash => {
            Err(format!("index {index} comes to the hash {hash:016x} and came to {then:016x}"))
        }
        Some(_) => {
            *met += 1;
            Ok(())
        }
        None => Ok(()),
    }
}

async fn stored_state(
    io: &Io,
    place: &Place,
    recovered: &Recovered,
    config: StateConfig,
) -> Result<State, String> {
    let Some(named) = &recovered.checkpoint else { return Ok(State::new(config)) };
    let mut importer = Importer::new();
    let mut rest = Vec::new();
    let consume = |section, piece: &[u8]| match section {
        Section::Mvcc => importer.feed(piece),
        Section::Rest => {
            rest = piece.to_vec();
            Ok(())
        }
    };
    snapshot::load(io, &place.directory, &named.file, Some(named.root), consume)
        .await
        .map_err(|error| error.to_string())?;
    State::import_rest(config, importer.finish()?, &rest)
}

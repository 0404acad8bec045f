//! What a start must say of damaged files.

use std::path::Path;

use ringbolt_engine::Corruption;
use ringbolt_engine::replica::{OpenError, Replica, accept_loss};
use ringbolt_engine::snapshot::LoadError;
use ringbolt_engine::wal::{self, Mode};
use ringbolt_io::sim::{CrashKind, MachineId, World};

use super::base::{
    Base, DIRECTORY, End, Files, Seen, config, files_of, machine_with, open_and_see, run, see,
};
use super::damage::{Damage, Place};

/// What a start did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The damage changed no byte.
    Nothing,
    /// It refused, as it should.
    Refused,
    /// It started with exactly what was there.
    Whole,
    /// It started without the last write of a member that crashed, which nothing vouched for.
    TailCut,
}

/// What became of a refused log whose loss was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WayOut {
    /// It starts, with revisions beyond every one given out.
    Open,
    /// It refuses still: what its log needs is in a checkpoint that is gone or damaged.
    CheckpointGone,
}

/// Starts `base` with `place` damaged.
///
/// # Errors
/// What is wrong with what the start did.
pub fn judge(base: &Base, place: &Place) -> Result<Verdict, String> {
    let mut files = base.files.clone();
    let changed = place.apply(&mut files);
    if changed.is_empty() {
        return Ok(Verdict::Nothing);
    }
    let (mut world, machine) = machine_with(base.seed, &files);
    match open_and_see(&mut world, machine) {
        Ok(seen) => started(base, &seen),
        Err(error) => {
            let left = files_of(&world, machine);
            refused(place, &changed, &error)?;
            untouched(&error, &files, &left)?;
            Ok(Verdict::Refused)
        }
    }
}

fn started(base: &Base, seen: &Seen) -> Result<Verdict, String> {
    if *seen == base.seen {
        return Ok(Verdict::Whole);
    }
    if matches!(base.end, End::Busy(_)) && *seen == base.before_last {
        return Ok(Verdict::TailCut);
    }
    Err(format!("wrong data: it was {:?}, a start shows {seen:?}", base.seen))
}

/// The refusal names the file, the place, expected, found and the next command.
fn refused(place: &Place, changed: &[String], error: &OpenError) -> Result<(), String> {
    let text = error.to_string();
    let Some(corruption) = corruption(error) else {
        return Err(format!("refused for another reason: {text}"));
    };
    let Corruption { file, offset, expected, found } = corruption;
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    if !name.as_ref().is_some_and(|name| changed.contains(name)) {
        return Err(format!("another file is named: {text}"));
    }
    let named = Some(&place.file) == name.as_ref();
    if let Damage::Flip { at, .. } = place.damage
        && named
        && *offset > at as u64
    {
        return Err(format!("a place behind the damage is named: {text}"));
    }
    let next = match error {
        OpenError::Log(_) => format!("ringbolt recover --accept-loss --directory={DIRECTORY}"),
        _ => "restore this directory from a copy".to_owned(),
    };
    let parts = [format!("@ {offset:#x}"), format!("expected {expected}"), found.clone(), next];
    match parts.iter().find(|part| part.is_empty() || !text.contains(*part)) {
        Some(part) => Err(format!("no {part:?} in: {text}")),
        None => Ok(()),
    }
}

fn corruption(error: &OpenError) -> Option<&Corruption> {
    match error {
        OpenError::Log(wal::OpenError::Corrupt(corruption))
        | OpenError::Checkpoint(LoadError::Corrupt(corruption)) => Some(corruption),
        _ => None,
    }
}

/// A refused log is as it was. A refused checkpoint is too; its log may have begun a segment.
fn untouched(error: &OpenError, before: &Files, after: &Files) -> Result<(), String> {
    for (name, bytes) in before {
        let kept = after.get(name) == Some(bytes);
        let may_change = matches!(error, OpenError::Checkpoint(_)) && !name.ends_with("checkpoint");
        if !kept && !may_change {
            return Err(format!("a refused start changed {name}"));
        }
    }
    Ok(())
}

/// Accepts the loss of a refused `base` and starts it.
///
/// # Errors
/// What is wrong with what that did.
pub fn way_out(base: &Base, place: &Place) -> Result<WayOut, String> {
    let mut files = base.files.clone();
    place.apply(&mut files);
    let (mut world, machine) = machine_with(base.seed, &files);
    let first = open_and_see(&mut world, machine);
    if let Err(OpenError::Checkpoint(_)) = first {
        return Ok(WayOut::CheckpointGone);
    }
    accept(&mut world, machine)?;
    let opened = run((&mut world, machine), |io| async move {
        let replica = Replica::open(io, config()).await?;
        replica.state().check();
        Ok(see(&replica))
    });
    match opened {
        Ok(seen) if seen.revision > base.seen.revision => Ok(WayOut::Open),
        Ok(seen) => Err(format!("not fenced: {seen:?} after {:?}", base.seen)),
        Err(OpenError::Checkpoint(LoadError::Corrupt(_))) => Ok(WayOut::CheckpointGone),
        Err(error) => Err(format!("the way out leads nowhere: {error}")),
    }
}

fn accept(world: &mut World, machine: MachineId) -> Result<(), String> {
    let accepted = run((world, machine), |io| async move {
        let config = config().wal.unwrap_or_else(|| wal::WalConfig::new(Mode::Safe));
        let opened = accept_loss(&io, Path::new(DIRECTORY), config).await;
        let (writer, _) = opened.map_err(|error| error.to_string())?;
        writer.close().await.map_err(|failure| failure.to_string())
    });
    world.crash(machine, CrashKind::Process);
    accepted.map_err(|error| format!("loss is not accepted: {error}"))
}

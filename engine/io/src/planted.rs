//! Mistakes that a test build can switch on one at a time, to show that its checkers find them.
//!
//! Only a build with the feature `planted` holds them: in any other [`is`] is always false, known
//! when it is compiled, and what hangs on it is not in the program.

/// A mistake, where it would be made, and what it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "`NAMES` says it")]
pub enum Planted {
    AcknowledgedBeforeDurable,
    WatermarkNotAdvanced,
    CheckpointNotSynced,
    TornTailAccepted,
    WatchGapOnCatchUp,
    EventTwiceAtResume,
    LeaseEndsWithWallClock,
    CompactionRemovesLive,
    SubtreeCountWrong,
    FenceSkipped,
    RecoveryWritesBehindCut,
    RecoveryWithoutSync,
    LeasesOfAnotherIndex,
}

use Planted::{
    AcknowledgedBeforeDurable, CheckpointNotSynced, CompactionRemovesLive, EventTwiceAtResume,
    FenceSkipped, LeaseEndsWithWallClock, LeasesOfAnotherIndex, RecoveryWithoutSync,
    RecoveryWritesBehindCut, SubtreeCountWrong, TornTailAccepted, WatchGapOnCatchUp,
    WatermarkNotAdvanced,
};

/// Every mistake and its name.
pub const NAMES: [(Planted, &str); 13] = [
    (AcknowledgedBeforeDurable, "acknowledged before durable"),
    (WatermarkNotAdvanced, "watermark not advanced"),
    (CheckpointNotSynced, "checkpoint renamed before sync"),
    (TornTailAccepted, "torn tail accepted"),
    (WatchGapOnCatchUp, "watch gap on catch-up"),
    (EventTwiceAtResume, "event twice at a resume"),
    (LeaseEndsWithWallClock, "lease expired by a clock jump"),
    (CompactionRemovesLive, "compaction removes a live version"),
    (SubtreeCountWrong, "wrong subtree count after a delete"),
    (FenceSkipped, "fence skipped"),
    (RecoveryWritesBehindCut, "recovery writes behind its cut"),
    (RecoveryWithoutSync, "recovery without the final sync"),
    (LeasesOfAnotherIndex, "leases of another index than the keys"),
];

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Whether this mistake is made on this thread.
#[cfg(feature = "planted")]
#[must_use]
pub fn is(mistake: Planted) -> bool {
    PLANTED.get() == Some(mistake)
}

/// Whether this mistake is made on this thread: never, in this build.
#[cfg(not(feature = "planted"))]
#[must_use]
#[inline(always)]
pub const fn is(_mistake: Planted) -> bool {
    false
}

/// Makes one mistake from now on, on this thread. False in a build that holds none.
pub fn plant(mistake: Option<Planted>) -> bool {
    #[cfg(feature = "planted")]
    PLANTED.set(mistake);
    cfg!(feature = "planted") || mistake.is_none()
}

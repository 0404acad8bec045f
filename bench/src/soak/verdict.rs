//! What a soak is judged by. Pure: samples in, judgements out.

use crate::limits::{
    SOAK_COMPACTIONS_MIN, SOAK_GROWTH_PER_CENT_MAX, SOAK_LOG_BYTES_MIN, SOAK_SEGMENT_BYTES,
};

/// What one window showed, at its end.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Seconds since the load began.
    pub at_s: f64,
    /// Calls answered each second.
    pub per_second: f64,
    /// The 50th and 99th percentile of puts, from the moment each was due.
    pub put_us: (u64, u64),
    /// Resident memory of the server.
    pub resident_bytes: u64,
    /// What its data directory takes on the disk.
    pub disk_bytes: u64,
    /// Accounted bytes of its state: `dbSize` of Status.
    pub state_bytes: u64,
    /// Calls that failed and watchers that ended.
    pub errors: u64,
    /// Calls that were due and not sent.
    pub skipped: u64,
    /// Events that watchers read.
    pub events: u64,
}

/// One thing that is judged.
#[derive(Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What, with the figures.
    pub text: String,
    /// Whether it is as it should be; `None` when the run was too short to tell.
    pub met: Option<bool>,
}

/// The most a data directory may take with a state of `state` bytes: two checkpoints, two times the
/// log that is due for one, and the reserve: one segment and one checkpoint more. Source: "Space on
/// disk" of docs/OPERATING.md.
pub fn disk_bytes_max(state: u64) -> u64 {
    let log = state.max(SOAK_LOG_BYTES_MIN);
    2 * state + 2 * log + (SOAK_SEGMENT_BYTES + state)
}

/// Judges a run by its samples. `compactions` is how many there were in its first third: memory is
/// level only after some of them.
pub fn judge(samples: &[Sample], compactions: u64) -> Vec<Judgement> {
    vec![no_errors(samples), level_memory(samples, compactions), bounded_disk(samples)]
}

fn no_errors(samples: &[Sample]) -> Judgement {
    let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
    Judgement { text: format!("{errors} errors"), met: Some(errors == 0) }
}

/// The median of the last third against that of the windows right after the first third, which is
/// for growing to the size that the load asks for.
fn level_memory(samples: &[Sample], compactions: u64) -> Judgement {
    let third = samples.len() / 3;
    let early = median(&samples[third..samples.len() / 2]);
    let late = median(&samples[samples.len() - third..]);
    let (Some(early), Some(late)) = (early, late) else {
        return Judgement { text: "resident memory: too few windows".to_owned(), met: None };
    };
    let most = early + early * SOAK_GROWTH_PER_CENT_MAX / 100;
    let text = format!(
        "resident memory: median {} MB in the last third, {} MB right after the first; at most \
         {} MB",
        late / 1_000_000,
        early / 1_000_000,
        most / 1_000_000
    );
    if compactions < SOAK_COMPACTIONS_MIN {
        let text = format!("{text} (not judged: {compactions} compactions in the first third)");
        return Judgement { text, met: None };
    }
    Judgement { text, met: Some(late <= most) }
}

fn median(samples: &[Sample]) -> Option<u64> {
    let mut bytes: Vec<u64> = samples.iter().map(|sample| sample.resident_bytes).collect();
    bytes.sort_unstable();
    bytes.get(bytes.len() / 2).copied()
}

/// The bound follows the largest state so far: segments and checkpoints of then go with the next
/// checkpoint, not at once.
fn bounded_disk(samples: &[Sample]) -> Judgement {
    let bounds = disk_bounds(samples);
    let all = samples.iter().zip(&bounds);
    let over = all.clone().find(|(sample, bound)| sample.disk_bytes > **bound);
    let worst = over.or_else(|| all.max_by_key(|(sample, _)| sample.disk_bytes));
    let Some((sample, bound)) = worst else {
        return Judgement { text: "disk: no windows".to_owned(), met: None };
    };
    let text = format!(
        "disk: {} MB after {:.0} s, state {} MB; at most {} MB",
        sample.disk_bytes / 1_000_000,
        sample.at_s,
        sample.state_bytes / 1_000_000,
        bound / 1_000_000
    );
    Judgement { text, met: Some(over.is_none()) }
}

/// The bound of each sample.
pub fn disk_bounds(samples: &[Sample]) -> Vec<u64> {
    let mut state = 0;
    samples
        .iter()
        .map(|sample| {
            state = sample.state_bytes.max(state);
            disk_bytes_max(state)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Sample, disk_bounds, disk_bytes_max, judge};

    const MIB: u64 = 1 << 20;

    /// A run whose windows have this much memory, and nothing else to complain of.
    fn run(resident: impl IntoIterator<Item = u64>) -> Vec<Sample> {
        resident
            .into_iter()
            .map(|bytes| Sample { resident_bytes: bytes * MIB, ..Sample::default() })
            .collect()
    }

    fn met(samples: &[Sample]) -> Vec<Option<bool>> {
        judge(samples, 10).into_iter().map(|judgement| judgement.met).collect()
    }

    /// Growth in the first third is the load's; a level run after it passes.
    #[test]
    fn a_run_that_grows_first_and_is_level_then_passes() {
        let samples = run((0..10).map(|step| 100 + 10 * step).chain([200; 20]));
        assert_eq!(met(&samples), [Some(true); 3]);
    }

    /// Five per cent are allowed, six are not.
    #[test]
    fn a_run_that_grows_for_ever_does_not_pass() {
        let at = |last| run([[100; 10], [100; 10], [last; 10]].concat());
        assert_eq!(met(&at(105)), [Some(true), Some(true), Some(true)]);
        assert_eq!(met(&at(106)), [Some(true), Some(false), Some(true)]);
    }

    /// One spike is no growth: medians are compared.
    #[test]
    fn a_spike_in_the_last_third_is_no_growth() {
        let mut samples = run([100; 30]);
        samples[25].resident_bytes *= 10;
        assert_eq!(met(&samples), [Some(true); 3]);
    }

    /// Before some compactions memory grows with the history that is kept.
    #[test]
    fn a_short_run_is_not_judged_by_its_memory() {
        let samples = run(100..130);
        let short: Vec<_> = judge(&samples, 2).into_iter().map(|one| one.met).collect();
        assert_eq!(short, [Some(true), None, Some(true)]);
        assert_eq!(met(&run([100; 2]))[1], None);
        assert_eq!(met(&[]), [Some(true), None, None]);
    }

    /// One failed call fails the run.
    #[test]
    fn an_error_fails_the_run() {
        let mut samples = run([100; 30]);
        samples[3].errors = 1;
        assert_eq!(met(&samples), [Some(false), Some(true), Some(true)]);
    }

    /// A small state has the log's least size twice and a segment: 192 MiB beside itself.
    #[test]
    fn the_bound_of_the_disk_is_the_documented_one() {
        assert_eq!(disk_bytes_max(0), 192 * MIB);
        assert_eq!(disk_bytes_max(10 * MIB), (30 + 192) * MIB);
        assert_eq!(disk_bytes_max(100 * MIB), (300 + 200 + 64) * MIB);
    }

    /// A window over the bound fails the run, though a later one takes more and may.
    #[test]
    fn one_window_over_the_bound_of_the_disk_fails_the_run() {
        let mut samples = run([100; 30]);
        samples[4].disk_bytes = 193 * MIB;
        for sample in &mut samples[5..] {
            (sample.disk_bytes, sample.state_bytes) = (400 * MIB, 100 * MIB);
        }
        assert_eq!(met(&samples), [Some(true), Some(true), Some(false)]);
        samples[4].disk_bytes = 192 * MIB;
        assert_eq!(met(&samples), [Some(true); 3]);
    }

    /// After a compaction the files of the larger state are still there for a while.
    #[test]
    fn the_bound_follows_the_largest_state_so_far() {
        let mut samples = run([100; 3]);
        samples[1].state_bytes = 100 * MIB;
        samples[2].state_bytes = 50 * MIB;
        let bounds = disk_bounds(&samples);
        assert_eq!(bounds, [192 * MIB, 564 * MIB, 564 * MIB]);
    }
}

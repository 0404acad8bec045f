//! A failing run made smaller: without the faults it does not need, and shorter.

use std::time::Duration;

use super::run::Options;

/// Runs that shrinking may take.
const TRIES_MAX: usize = 60;

/// The smallest run found that still `fails`. The failure may become another one: whatever goes
/// wrong in a smaller run is easier to understand.
pub fn shrink(options: &Options, fails: impl Fn(&Options) -> bool) -> Options {
    let mut best = Options { faults: Some(options.faults()), ..options.clone() };
    let mut left = TRIES_MAX;
    let mut try_one = |smaller: Options, best: &mut Options| {
        let tried = left > 0 && fails(&smaller);
        left = left.saturating_sub(1);
        if tried {
            *best = smaller;
        }
        tried
    };
    while best.span > Duration::from_secs(1) {
        let span = Duration::from_secs(best.span.as_secs() / 2);
        if !try_one(Options { span, ..best.clone() }, &mut best) {
            break;
        }
    }
    for fault in best.faults().iter() {
        let faults = Some(best.faults().without(fault));
        try_one(Options { faults, ..best.clone() }, &mut best);
    }
    for mode in best.modes.clone().unwrap_or_default() {
        let modes = Some(vec![mode]);
        if best.modes.as_ref().is_some_and(|modes| modes.len() > 1) {
            try_one(Options { modes, ..best.clone() }, &mut best);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::faults::{Fault, FaultSet};
    use super::*;

    /// Only what the failure needs is left.
    #[test]
    fn keeps_what_is_needed() {
        let mut all = FaultSet::NONE;
        for (fault, _) in super::super::faults::NAMES {
            all.insert(fault);
        }
        let span = Duration::from_secs(30);
        let options = Options { seed: 1, span, modes: None, faults: Some(all), pace: None };
        let needs = |options: &Options| {
            let faults = options.faults();
            faults.has(Fault::Pause) && faults.has(Fault::Kill) && options.span.as_secs() >= 7
        };
        let small = shrink(&options, needs);
        assert_eq!(small.faults().iter().collect::<Vec<_>>(), [Fault::Kill, Fault::Pause]);
        assert_eq!(small.span.as_secs(), 7);
    }
}

//! What a proposer decides about a lease before it is granted: its id and its time to live.
//!
//! Both travel in the log entry, so that every member applies the same numbers.

use std::time::Duration;

use ringbolt_io::time::WallTime;

use crate::types::{LeaseId, MemberId};

/// Bits of the counter at the low end of an id.
const COUNTER_BITS: u32 = 8;
/// Bits of time and counter together, below the member's sixteen.
const LOW_BITS: u32 = 48;

/// Picks the id of a lease whose client left the choice to the server.
///
/// *Shape*: the member's id, the wall clock and a counter of this process in; a positive id out,
/// never 0. The caller raises `counter` by one for each lease and checks the id for use at apply.
///
/// ```text
///   bit 63   62 .. 48            47 .. 8                          7 .. 0
///   0        member id, low 15   milliseconds since the epoch  +  counter
/// ```
///
/// The counter is *added* to the time, not pasted beside it: more than 256 leases in one
/// millisecond borrow from the next one instead of starting again. Source: etcd `LeaseGrant`, id 0.
#[must_use]
pub fn choose_id(member: MemberId, now: WallTime, counter: u64) -> LeaseId {
    let low_mask = (1_u64 << LOW_BITS) - 1;
    let milliseconds = now.0 / 1_000_000;
    let low = (milliseconds << COUNTER_BITS).wrapping_add(counter) & low_mask;
    let id = ((member.0 & 0xffff) << LOW_BITS | low) & (u64::MAX >> 1);
    // Zero means "no lease". It would take a member id that ends in sixteen zero bits (or one) and
    // a clock at the epoch.
    LeaseId(i64::try_from(id.max(1)).expect("63 bits fit an i64"))
}

/// The least time to live a lease can have, given the election timeout: 1.5 times it, in whole
/// seconds rounded up. A shorter lease could end before a new leader was found.
///
/// Unit: seconds. 2 at the default timeout of one second.
#[must_use]
pub fn ttl_min_s(election_timeout: Duration) -> i64 {
    let milliseconds = election_timeout.as_millis().saturating_mul(3) / 2;
    i64::try_from(milliseconds.div_ceil(1000)).unwrap_or(i64::MAX)
}

/// The time to live a grant really gets: what was asked for, but at least the minimum. Zero and
/// negative requests get the minimum too. A time that is too large stays as it is: apply refuses
/// it.
///
/// Unit: seconds. Source: etcd `LeaseGrantResponse.TTL`.
#[must_use]
pub fn effective_ttl_s(asked_s: i64, min_s: i64) -> i64 {
    asked_s.max(min_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids are positive, carry the member's low bits and follow the clock and the counter.
    #[test]
    fn an_id_is_member_time_and_counter() {
        let member = MemberId(0x8e9e_05c5_2164_694d);
        let now = WallTime(1_700_000_000_000_000_000);
        let first = choose_id(member, now, 0);
        assert_eq!(first.0 >> 48, 0x694d);
        assert_eq!((first.0 & 0xffff_ffff_ffff) >> 8, 1_700_000_000_000 & 0xff_ffff_ffff);
        assert_eq!(choose_id(member, now, 1).0, first.0 + 1);
        // The 257th lease of a millisecond borrows from the next one.
        assert_eq!(choose_id(member, now, 256).0, first.0 + 256);
        let later = WallTime(now.0 + 1_000_000);
        assert_eq!(choose_id(member, later, 0), choose_id(member, now, 256));
    }

    /// The sign bit is cut off, and zero is never chosen.
    #[test]
    fn an_id_is_positive() {
        let top = choose_id(MemberId(u64::MAX), WallTime(u64::MAX), u64::MAX);
        assert!(top.0 > 0);
        assert_eq!(choose_id(MemberId(0), WallTime(0), 0), LeaseId(1));
        assert_eq!(choose_id(MemberId(0x8000), WallTime(0), 0), LeaseId(1));
    }

    /// 1.5 election timeouts, rounded up to seconds; short requests are raised to it.
    #[test]
    fn a_short_time_to_live_is_raised() {
        assert_eq!(ttl_min_s(Duration::from_millis(1000)), 2);
        assert_eq!(ttl_min_s(Duration::from_millis(100)), 1);
        assert_eq!(ttl_min_s(Duration::from_millis(2000)), 3);
        for asked in [i64::MIN, -1, 0, 1, 2] {
            assert_eq!(effective_ttl_s(asked, 2), 2);
        }
        assert_eq!(effective_ttl_s(60, 2), 60);
        assert_eq!(effective_ttl_s(i64::MAX, 2), i64::MAX);
    }
}

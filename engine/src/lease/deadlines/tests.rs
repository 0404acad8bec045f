//! Deadlines beside a sorted list: the same questions get the same answers, whatever happened
//! before. Then the rules one by one.

use proptest::prelude::*;

use super::*;

const RETRY: Duration = Duration::from_secs(7);

fn at(seconds: u64) -> MonoTime {
    MonoTime(seconds * 1_000_000_000)
}

#[derive(Clone, Debug)]
enum Step {
    Grant(i64, i64),
    Renew(i64),
    Forget(i64),
    Wait(u64),
    Due(usize),
    Lead(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_i64..12, 1_i64..9).prop_map(|(id, ttl_s)| Step::Grant(id, ttl_s)),
        4 => (0_i64..12).prop_map(Step::Renew),
        1 => (0_i64..12).prop_map(Step::Forget),
        3 => (0_u64..6).prop_map(Step::Wait),
        3 => (0_usize..5).prop_map(Step::Due),
        1 => (0_u64..3).prop_map(Step::Lead),
    ]
}

/// The model: one row for each lease, sorted when a question needs it.
#[derive(Default)]
struct Model {
    rows: Vec<Row>,
}

#[derive(Clone, Copy)]
struct Row {
    act: MonoTime,
    id: LeaseId,
    ttl_s: i64,
    end: MonoTime,
    revoking: bool,
}

impl Model {
    fn row(&mut self, id: LeaseId) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.id == id)
    }

    fn put(&mut self, id: LeaseId, ttl_s: i64, end: MonoTime) {
        self.rows.retain(|row| row.id != id);
        self.rows.push(Row { act: end, id, ttl_s, end, revoking: false });
    }

    fn renew(&mut self, id: LeaseId, now: MonoTime) -> Renewal {
        let Some(row) = self.row(id) else { return Renewal::Unknown };
        if row.revoking || row.end <= now {
            return Renewal::Ended;
        }
        let ttl_s = row.ttl_s;
        self.put(id, ttl_s, now + seconds(ttl_s));
        Renewal::Renewed { ttl_s }
    }

    fn due(&mut self, now: MonoTime, count_max: usize) -> Vec<LeaseId> {
        self.rows.sort_by_key(|row| (row.act, row.id));
        let mut due = Vec::new();
        for row in self.rows.iter_mut().filter(|row| row.act <= now).take(count_max) {
            row.act = now + RETRY;
            row.revoking = true;
            due.push(row.id);
        }
        due
    }
}

proptest! {
    /// Any history of grants, renewals, waits and revocations: both sides agree at each step.
    #[test]
    fn agrees_with_a_sorted_list(steps in prop::collection::vec(step(), 0..60)) {
        let mut deadlines = Deadlines::new(RETRY);
        let mut model = Model::default();
        let mut now = at(100);
        for step in steps {
            match step {
                Step::Grant(id, ttl_s) => {
                    deadlines.grant(LeaseId(id), ttl_s, now);
                    model.put(LeaseId(id), ttl_s, now + seconds(ttl_s));
                }
                Step::Renew(id) => {
                    let id = LeaseId(id);
                    prop_assert_eq!(deadlines.renew(id, now), model.renew(id, now));
                }
                Step::Forget(id) => {
                    deadlines.forget(LeaseId(id));
                    model.rows.retain(|row| row.id != LeaseId(id));
                }
                Step::Wait(wait_s) => now = now + Duration::from_secs(wait_s),
                Step::Due(count_max) => {
                    prop_assert_eq!(deadlines.due(now, count_max), model.due(now, count_max));
                }
                Step::Lead(grace_s) => {
                    let grace = Duration::from_secs(grace_s);
                    let leases: Vec<_> = model.rows.iter().map(|row| (row.id, row.ttl_s)).collect();
                    deadlines.lead(leases.iter().copied(), now, grace);
                    for (id, ttl_s) in leases {
                        model.put(id, ttl_s, now + seconds(ttl_s) + grace);
                    }
                }
            }
            deadlines.check();
            for id in 0..12 {
                let expected = model.row(LeaseId(id)).map(|row| row.end.since(now));
                prop_assert_eq!(deadlines.remaining(LeaseId(id), now), expected);
            }
            prop_assert_eq!(deadlines.next(), model.rows.iter().map(|row| row.act).min());
            prop_assert_eq!(deadlines.len(), model.rows.len());
        }
    }
}

/// Rules 8.7 and 8.8: a renewal gives the whole time again; once the time has passed, or the
/// lease was handed out, it is never renewed, though it still exists.
#[test]
fn a_lease_whose_time_has_passed_is_not_renewed() {
    let mut deadlines = Deadlines::new(RETRY);
    deadlines.grant(LeaseId(1), 10, at(0));
    assert_eq!(deadlines.renew(LeaseId(1), at(9)), Renewal::Renewed { ttl_s: 10 });
    assert_eq!(deadlines.remaining(LeaseId(1), at(9)), Some(Duration::from_secs(10)));
    assert_eq!(deadlines.renew(LeaseId(1), at(19)), Renewal::Ended);
    assert_eq!(deadlines.due(at(19), 100), [LeaseId(1)]);
    assert_eq!(deadlines.renew(LeaseId(1), at(19)), Renewal::Ended);
    assert_eq!(deadlines.remaining(LeaseId(1), at(20)), Some(Duration::ZERO));
    deadlines.forget(LeaseId(1));
    assert_eq!(deadlines.renew(LeaseId(1), at(19)), Renewal::Unknown);
    assert_eq!(deadlines.remaining(LeaseId(1), at(20)), None);
}

/// A revocation that was lost on its way to the log is asked for again.
#[test]
fn a_lost_revocation_is_repeated() {
    let mut deadlines = Deadlines::new(RETRY);
    deadlines.grant(LeaseId(1), 10, at(0));
    assert_eq!(deadlines.due(at(10), 100), [LeaseId(1)]);
    assert_eq!(deadlines.due(at(16), 100), []);
    assert_eq!(deadlines.due(at(17), 100), [LeaseId(1)]);
}

/// Rule 8.13: after a restart every lease has its full time to live and one election timeout.
#[test]
fn a_leader_starts_with_full_times() {
    let mut deadlines = Deadlines::new(RETRY);
    deadlines.grant(LeaseId(1), 10, at(0));
    deadlines.due(at(10), 100);
    deadlines.lead([(LeaseId(1), 10), (LeaseId(2), 5)].into_iter(), at(50), Duration::from_secs(1));
    assert_eq!(deadlines.remaining(LeaseId(1), at(50)), Some(Duration::from_secs(11)));
    assert_eq!(deadlines.next(), Some(at(56)));
    assert_eq!(deadlines.renew(LeaseId(1), at(50)), Renewal::Renewed { ttl_s: 10 });
    assert_eq!(deadlines.ids().collect::<Vec<_>>(), [LeaseId(2), LeaseId(1)]);
}

/// A hundred thousand leases that end together leave in portions, in the order of their ids, and
/// each portion costs only its own size.
#[test]
fn a_hundred_thousand_end_together() {
    let mut deadlines = Deadlines::new(RETRY);
    for id in (1..=100_000).rev() {
        deadlines.grant(LeaseId(id), 60, at(0));
    }
    assert_eq!(deadlines.due(at(59), 500), []);
    let mut seen = 0;
    while seen < 100_000 {
        let due = deadlines.due(at(60), 500);
        assert_eq!(due.len(), 500);
        for id in due {
            seen += 1;
            assert_eq!(id, LeaseId(seen));
            deadlines.forget(id);
        }
    }
    assert!(deadlines.is_empty());
}

/// A time to live near the largest number of seconds does not overflow the clock.
#[test]
fn a_huge_time_to_live_is_far_away() {
    let mut deadlines = Deadlines::new(RETRY);
    deadlines.grant(LeaseId(1), crate::limits::LEASE_TTL_S_MAX, at(1));
    assert_eq!(deadlines.due(at(1_000_000), 10), []);
    let remaining = deadlines.remaining(LeaseId(1), at(1)).map(|left| left.as_secs());
    assert_eq!(remaining, Some(9_000_000_000));
}

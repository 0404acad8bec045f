//! Alarms: what makes the whole cluster refuse writes until an operator clears it.

use std::collections::BTreeSet;

use ringbolt_proto::etcdserverpb::alarm_request::AlarmAction;
use ringbolt_proto::etcdserverpb::{AlarmMember, AlarmRequest, AlarmResponse, AlarmType};

use crate::types::MemberId;

/// The alarms that are raised, by (kind, member). They outlive restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alarms {
    raised: BTreeSet<(i32, MemberId)>,
}

impl Alarms {
    /// Whether any member raised "no space": writes that add data are refused cluster-wide.
    #[must_use]
    pub fn no_space(&self) -> bool {
        self.any(AlarmType::Nospace)
    }

    /// Whether any member raised "corrupt": every write is refused.
    #[must_use]
    pub fn corrupt(&self) -> bool {
        self.any(AlarmType::Corrupt)
    }

    /// Raises an alarm; what is raised already stays. `NONE` is no alarm.
    pub fn raise(&mut self, member: MemberId, alarm: i32) {
        if alarm != AlarmType::None as i32 {
            self.raised.insert((alarm, member));
        }
    }

    /// All alarms by (kind, member).
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i32, MemberId)> {
        self.raised.iter().copied()
    }

    /// Applies an alarm command and says what it concerned. An action outside the enum concerns
    /// nothing.
    ///
    /// Source: etcd `Maintenance.Alarm`.
    pub fn apply(&mut self, request: &AlarmRequest) -> AlarmResponse {
        let (member, none) = (MemberId(request.member_id), AlarmType::None as i32);
        let concerned = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => {
                let wanted = |alarm: i32| request.alarm == none || request.alarm == alarm;
                self.iter().filter(|(alarm, _)| wanted(*alarm)).collect()
            }
            Ok(AlarmAction::Activate) if request.alarm != none => {
                self.raise(member, request.alarm);
                vec![(request.alarm, member)]
            }
            Ok(AlarmAction::Deactivate) if self.raised.remove(&(request.alarm, member)) => {
                vec![(request.alarm, member)]
            }
            _ => Vec::new(),
        };
        let to_wire = |(alarm, member): (i32, MemberId)| AlarmMember { member_id: member.0, alarm };
        AlarmResponse { header: None, alarms: concerned.into_iter().map(to_wire).collect() }
    }

    fn any(&self, alarm: AlarmType) -> bool {
        let alarm = alarm as i32;
        let range = (alarm, MemberId(0))..=(alarm, MemberId(u64::MAX));
        self.raised.range(range).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: i32 = AlarmType::None as i32;
    const NO_SPACE: i32 = AlarmType::Nospace as i32;
    const CORRUPT: i32 = AlarmType::Corrupt as i32;

    /// Rule 11.8, row by row: (action, member, alarm) and what it answers.
    #[test]
    fn the_alarm_request() {
        let (get, activate, deactivate) = (0, 1, 2);
        type Row<'a> = (i32, u64, i32, &'a [(u64, i32)]);
        let rows: &[Row<'_>] = &[
            (get, 0, NONE, &[]),
            (activate, 1, NONE, &[]),
            (activate, 7, NO_SPACE, &[(7, NO_SPACE)]),
            (activate, 7, NO_SPACE, &[(7, NO_SPACE)]),
            (activate, 3, CORRUPT, &[(3, CORRUPT)]),
            (get, 99, NONE, &[(7, NO_SPACE), (3, CORRUPT)]),
            (get, 99, CORRUPT, &[(3, CORRUPT)]),
            (9, 3, CORRUPT, &[]),
            (deactivate, 8, NO_SPACE, &[]),
            (deactivate, 7, NONE, &[]),
            (deactivate, 7, NO_SPACE, &[(7, NO_SPACE)]),
            (deactivate, 7, NO_SPACE, &[]),
            (get, 0, NONE, &[(3, CORRUPT)]),
        ];
        let mut alarms = Alarms::default();
        for (action, member_id, alarm, expected) in rows {
            let request = AlarmRequest { action: *action, member_id: *member_id, alarm: *alarm };
            let answer = alarms.apply(&request).alarms;
            let answer: Vec<_> =
                answer.iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect();
            assert_eq!(&answer, expected, "{request:?}");
        }
        assert!(alarms.corrupt());
        assert!(!alarms.no_space());
    }
}
